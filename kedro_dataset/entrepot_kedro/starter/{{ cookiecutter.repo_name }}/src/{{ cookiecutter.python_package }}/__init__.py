"""A project whose nodes share tables through Entrepot."""

__version__ = "0.1"
