"""Values that their reader may modify, copied only where it does: the reader's own, as a copy in memory would be.

========================  ==========================================================================================
stored value              what its reader gets
========================  ==========================================================================================
Arrow, Polars, bytes      a view, which cannot be modified in place anyway
pandas frames and series  a read-only view that pandas' copy-on-write takes for shared: it copies a block of columns
                          before the first write to it. Stored again unmodified, it shares its bytes with the original.
anything else             a private mapping (``copy="on_write"``): the kernel copies the pages that are written to
========================  ==========================================================================================

pandas knows that a block is shared by the weak references in the block's list. A block of this module's own, which
lives as long as the process, is added to that list. Where pandas does not work that way (before version 3, or if a
later one changes it, which is tried once per process), its values are read as anything else is.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache
from typing import Any

from entrepot import Store, raw_objects
from entrepot.codec import CopyMode
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

_UNMODIFIABLE = ("arrow.", "polars.", "python.bytes")
_PANDAS = ("pandas.DataFrame", "pandas.Series")


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


def _share_blocks(value: Any) -> None:
    shared = _shared_block()
    for block in value._mgr.blocks:
        block.refs.referenced_blocks.append(weakref.ref(shared))


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
