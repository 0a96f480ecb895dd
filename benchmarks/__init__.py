"""Benchmarks of the store; see the modules."""
