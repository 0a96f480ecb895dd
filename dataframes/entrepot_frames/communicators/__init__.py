"""How the ranks of a program exchange values: one interface, with several implementations."""
