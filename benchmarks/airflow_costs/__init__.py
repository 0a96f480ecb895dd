"""What the provider costs beside the values: its import, and reading the results of mapped tasks one after another."""
