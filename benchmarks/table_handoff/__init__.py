"""A hand-off of one table between three tasks, on each orchestrator."""
