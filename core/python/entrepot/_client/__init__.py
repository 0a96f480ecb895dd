"""Connections: ``Store`` and its methods, settings of sessions and locality sets, queries to the daemon."""
