"""Placement of pods near the data that their task instances read."""
