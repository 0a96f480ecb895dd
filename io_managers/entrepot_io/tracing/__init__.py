"""Spans of OpenTelemetry for the values that tasks pass on; see ``docs/traces.md``."""
