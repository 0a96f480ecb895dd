"""Settings of the project."""
