"""Measurements, the same for every transport."""
