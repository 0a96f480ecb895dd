"""A project of dg whose assets pass through the store."""
