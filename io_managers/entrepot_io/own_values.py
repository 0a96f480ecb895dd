"""Values that their reader may modify, copied only where it does: the reader's own, as a copy in memory would be.

========================  ==========================================================================================
stored value              what its reader gets
========================  ==========================================================================================
Arrow, Polars, bytes      a view, which cannot be modified in place anyway
pandas frames and series  a read-only view that pandas' copy-on-write takes for shared: it copies a block of columns
                          before the first write to it. Stored again unmodified, it shares its bytes with the original.
arrays in cells of these  copies: pandas does not know of them (an object column of arrays, ``attrs``)
anything else             a private mapping (``copy="on_write"``): the kernel copies the pages that are written to
========================  ==========================================================================================

pandas knows that a block is shared by the weak references in the block's list. A block of this module's own, which
lives as long as the process, is added to that list. Where pandas does not work that way (before version 3, or if a
later one changes it, which is tried once per process), its values are read as anything else is.
"""

from __future__ import annotations

import copy
import datetime as dt
import sys
import weakref
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from entrepot import Store, raw_objects
from entrepot.codec import CopyMode
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

_UNMODIFIABLE = ("arrow.", "polars.", "python.bytes")
_PANDAS = ("pandas.DataFrame", "pandas.Series")
_UNMODIFIABLE_OBJECTS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal, UUID}
)


def copy_mode_of(store: Store, oid: ObjectID) -> CopyMode:
    """Return the copy mode with which a reader gets a value of its own, for :func:`protect` to finish.

    Args:
        store: the session of the object.
        oid: the object; if it is not in the store, the mode suits values of any type.
    """
    try:
        codec = raw_objects.read(store, oid).type
    except (ObjectNotFound, ObjectLost):
        return "on_write"
    if codec.startswith(_UNMODIFIABLE):
        return "never"
    return "never" if codec in _PANDAS and _pandas_copies_shared_blocks() else "on_write"


def protect(value: Any) -> None:
    """Let pandas copy a block of a frame or series before it writes to it; other values are left alone.

    Args:
        value: read with the mode of :func:`copy_mode_of`.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and type(value) in (pandas.DataFrame, pandas.Series) and _pandas_copies_shared_blocks():
        _share_blocks(value)
        _own_objects(value)


def _share_blocks(value: Any) -> None:
    shared = _shared_block()
    for block in value._mgr.blocks:
        block.refs.referenced_blocks.append(weakref.ref(shared))


def _own_objects(value: Any) -> None:
    """Replace objects in a frame's or series' cells and ``attrs`` that may lie in the store by copies.

    The containers of these objects were made for this reader, so they can be changed in place.
    """
    memo: dict[int, Any] = {}  # what occurs twice is copied once
    for block in value._mgr.blocks:
        if block.values.dtype != object:
            continue
        cells = block.values
        if not _UNMODIFIABLE_OBJECTS.issuperset(map(type, cells.flat)):
            for position, cell in enumerate(cells.flat):
                if type(cell) not in _UNMODIFIABLE_OBJECTS:
                    cells.flat[position] = copy.deepcopy(cell, memo)
    for key, attribute in value.attrs.items():
        value.attrs[key] = copy.deepcopy(attribute, memo)


@cache
def _shared_block() -> Any:
    import pandas as pd

    return pd.DataFrame({"shared": [0]})._mgr.blocks[0]


@cache
def _pandas_copies_shared_blocks() -> bool:
    """Return whether :func:`_share_blocks` works with the installed pandas, by trying it."""
    import numpy as np
    import pandas as pd

    stored = np.zeros(2)
    stored.setflags(write=False)
    try:
        frame = pd.DataFrame({"x": pd.Series(stored, copy=False)}, copy=False)
        _share_blocks(frame)
        column = frame[["x"]]
        frame.loc[0, "x"] = 1
        column.iloc[1, 0] = 2
    except (AttributeError, TypeError, ValueError):
        return False
    return frame["x"].tolist() == [1, 0] and column["x"].tolist() == [0, 2] and not stored.any()
