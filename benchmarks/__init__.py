"""Entrepot measured beside other stores and beside what the machine can do; see ``python -m benchmarks --help``."""
