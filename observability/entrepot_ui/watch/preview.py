"""The first rows of an object as text. Nothing is unpickled, and nothing on disk is loaded unless that is asked for."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import entrepot
from entrepot.errors import EntrepotError, InvalidArgument
from entrepot.first_rows import cell_text, first_rows
from entrepot.safe_reads import reason_not_to_show

if TYPE_CHECKING:
    from entrepot import Store

MAX_ROWS = 500
MAX_COLUMNS = 100
MAX_CELL = 200  # characters
_BYTES_SHOWN = 512
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_CELL
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 20


def connect_to_read(address: str, scope: str = "default") -> Store:
    """Connect such that no value is ever unpickled.

    Raises:
        StoreUnavailable, AccessDenied: as ``entrepot.connect``.
    """
    return entrepot.connect(address, session="", scope=scope, durable=False, allow_pickle=False)


def preview(store: Store, oid: str, rows: int, *, load: bool = False) -> dict[str, Any]:
    """The schema and the first rows of an object, as JSON.

    Args:
        store: from ``connect_to_read``.
        oid: the object.
        rows: how many, at most ``MAX_ROWS``.
        load: read it even if it is on disk only, which brings it back into memory.

    Returns:
        ``kind``: ``"table"``, ``"array"``, ``"text"`` or ``"none"``; with ``columns`` and ``rows`` of text, or
        ``text``; ``note``: why there is nothing, or what is left out.

    Raises:
        InvalidArgument: rows out of range, or a malformed ID.
        ObjectNotFound, ObjectLost, StoreUnavailable: as ``Store.get``.
    """
    if not 1 <= rows <= MAX_ROWS:
        raise InvalidArgument(f"a preview has 1 to {MAX_ROWS} rows, not {rows}")
    info = store.info(oid)
    if info.state == "spilled" and not load:
        return _nothing("it is on disk only: reading it brings it back into memory", loadable=True)
    if info.collection is not None:
        text = f"a collection of {info.collection['members']} members, which are objects of their own"
        return {"kind": "text", "text": text, "note": ""}
    if reason := reason_not_to_show(info.type, info.nbytes):
        return _nothing(reason)
    try:
        value = store.get(oid, remote=False)
    except EntrepotError as error:
        return _nothing(str(error))
    return preview_of(value, rows)


def preview_of(value: Any, rows: int) -> dict[str, Any]:
    """The schema and the first rows of a value, as JSON, as :func:`preview` returns it."""
    if isinstance(value, entrepot.Blob):
        value = value.view
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(memoryview(value))
    name = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    if name == "numpy.ndarray" or name == "numpy.memmap":
        return _array(value, rows)
    shown = first_rows(value, rows, _cell, max_columns=MAX_COLUMNS)
    if shown is not None:
        is_array = name.startswith("pyarrow.") and not shown.is_table
        columns = [{"name": "value" if is_array else each, "type": kind} for each, kind in shown.columns]
        shown_table = _table(columns, shown.cells, shown.rows, shown.width)
        return {"text": _cut(str(value.type))} | shown_table if is_array else shown_table
    if name.startswith("pyarrow."):
        return {"kind": "text", "text": _cut(str(value.type)), "note": ""}
    return {"kind": "text", "text": cell_text(value, _SHORT.repr), "note": ""}


def _array(value: Any, rows: int) -> dict[str, Any]:
    if value.dtype.hasobject:
        return _nothing(f"an array of {value.dtype}")
    about = {"kind": "array", "text": f"{value.dtype}, shape {'×'.join(map(str, value.shape)) or 'scalar'}"}
    if value.ndim == 0:
        return {**about, "columns": [], "rows": [[cell_text(value.item(), _cell)]], "note": ""}
    if value.ndim > 2:
        value = (
            value.reshape(value.shape[0], -1) if value.size and value.flags.c_contiguous else value[:0].reshape(0, 1)
        )
    two = value[:, None] if value.ndim == 1 else value
    shown = two[:rows, :MAX_COLUMNS]
    columns = [{"name": str(index), "type": str(value.dtype)} for index in range(shown.shape[1])]
    return _table(columns, [[cell_text(item, _cell) for item in row] for row in shown.tolist()], *two.shape) | about


def _bytes(value: memoryview) -> dict[str, Any]:
    head = bytes(value[:_BYTES_SHOWN])
    note = "" if value.nbytes <= len(head) else f"the first {len(head)} of {value.nbytes} bytes"
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = error.start > len(head) - 4 and value.nbytes > len(head)  # only the last character is not whole
        text = head[: error.start].decode("utf-8") if cut else head.hex(" ")
    return {"kind": "text", "text": text, "note": note}


def _table(columns: list[dict[str, str]], cells: list[list[str]], rows: int, width: int) -> dict[str, Any]:
    parts = []
    if rows > len(cells):
        parts.append(f"{len(cells)} of {rows} rows")
    if width > len(columns):
        parts.append(f"{len(columns)} of {width} columns")
    return {"kind": "table", "columns": columns, "rows": cells, "total_rows": rows, "note": ", ".join(parts)}


def _nothing(note: str, *, loadable: bool = False) -> dict[str, Any]:
    return {"kind": "none", "note": note, "loadable": loadable}


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return _cut(
        value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else _SHORT.repr(value)
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"
