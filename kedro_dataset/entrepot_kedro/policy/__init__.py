"""Execution of a policy in a Kedro process."""
