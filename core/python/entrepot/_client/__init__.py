"""A connection, and the parts of a store that need nothing else: its session, its locality sets, its pins."""
