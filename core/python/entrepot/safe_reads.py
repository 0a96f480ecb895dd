"""Which values may be read only to show them: without code of other packages, unpickling or large copies."""

from __future__ import annotations

MAX_COPIED = 64 << 20  # bytes of a value that reading copies: plain Python data, frames with Python objects
_SHOWN = ("arrow.", "numpy.", "pandas.", "polars.", "python.", "entrepot.blob")  # others run code of their packages
# Codecs whose values are read without copies.
_VIEWED = ("arrow.", "numpy.", "python.bytes", "entrepot.blob", "polars.")


def reason_not_to_show(type_name: str, nbytes: int) -> str:
    """Say why a value of this type and size is not read to be shown; empty if it may be.

    >>> reason_not_to_show("arrow.table", 1 << 40), reason_not_to_show("python.data", 1 << 30)
    ('', '1073741824 bytes of python.data would be copied to be shown')
    """
    if not type_name.startswith(_SHOWN):
        return f"there is no preview of {type_name or 'this type'}; pickled values are never opened here"
    if nbytes > MAX_COPIED and not type_name.startswith(_VIEWED):
        return f"{nbytes} bytes of {type_name} would be copied to be shown"
    return ""
