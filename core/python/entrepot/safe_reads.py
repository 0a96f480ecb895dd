"""Which values may be read only to show them: without code of other packages, unpickling or large copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot._client.info import ObjectInfo

MAX_COPIED = 64 << 20  # bytes of a value that reading copies: plain Python data, frames with Python objects
_SHOWN = ("arrow.", "numpy.", "pandas.", "polars.", "python.", "entrepot.blob")  # others run code of their packages
# Codecs whose values are read without copies.
_VIEWED = ("arrow.", "numpy.", "python.bytes", "entrepot.blob", "polars.")


def reason_not_to_show(info: ObjectInfo) -> str:
    """Say why the value of this object is not read to be shown; empty if it may be."""
    if not info.type.startswith(_SHOWN):
        return f"there is no preview of {info.type or 'this type'}; pickled values are never opened here"
    if info.nbytes > MAX_COPIED and not info.type.startswith(_VIEWED):
        return f"{info.nbytes} bytes of {info.type} would be copied to be shown"
    return ""
