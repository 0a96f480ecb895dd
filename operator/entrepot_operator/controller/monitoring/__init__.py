"""Health probes, metrics and JSON logs of the operator."""
