"""Checkpoints by policy: whether to write one, writing it, and the catalog that finds it."""
