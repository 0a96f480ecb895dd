"""Checkpoints and durable sessions: methods of ``Store``, and the store that writes to a durable backend."""
