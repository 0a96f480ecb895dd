"""Streams: their writers, their readers, and what becomes of their chunks."""
