"""Servers that can hold a directory, behind one interface (``interface``)."""
