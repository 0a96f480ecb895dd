"""Subcommands of the command line; ``entrepot.cli`` puts them together."""
