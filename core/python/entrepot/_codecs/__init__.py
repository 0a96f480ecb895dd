"""Encoding of values: trees, codecs of plain Python, blobs, and short byte strings stored inline."""
