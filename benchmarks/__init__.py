"""Benchmarks of Entrepot against other stores and the machine's limits; see ``python -m benchmarks --help``."""
