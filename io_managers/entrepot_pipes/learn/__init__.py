"""``entrepot pipe learn``: run an engine's own tests, to see how it uses its data file and which rung they pass."""
