"""Placement of steps' pods near the data that they read."""
