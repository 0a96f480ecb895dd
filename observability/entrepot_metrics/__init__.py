"""Metrics of a store for Prometheus, from a process that is a client like any other."""
