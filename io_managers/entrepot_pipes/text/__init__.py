"""Tables as text, block by block: what a text looks like, blocks to record batches, and record batches to blocks.

Pure functions of bytes and Arrow data, without a store. Arrow's CSV and JSON code does the work.
"""

from entrepot_pipes.text.dialect import Dialect

__all__ = ["Dialect"]
