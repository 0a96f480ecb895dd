"""Profiles: what is known of engines. Those of this folder come with the package; others are made by ``pipe learn``."""
