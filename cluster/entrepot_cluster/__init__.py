"""Stores of several hosts: where objects are, and how they travel."""
