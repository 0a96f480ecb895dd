"""Execution of a policy in a Dagster process."""
