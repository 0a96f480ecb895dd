"""Injecting placement into pods and documents: scoring, affinity, validation, record and report."""
