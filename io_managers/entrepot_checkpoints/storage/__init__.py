"""Directories by URL: files that survive a crash, chunks named by their content, and lock files."""
