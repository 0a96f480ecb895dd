"""Observed snapshots, and the pure functions that compute the desired state from them."""
