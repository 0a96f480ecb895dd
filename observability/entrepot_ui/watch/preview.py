"""The first rows of an object as text. Nothing is unpickled, and nothing on disk is loaded unless that is asked for."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import entrepot
from entrepot.errors import EntrepotError, InvalidArgument

if TYPE_CHECKING:
    from entrepot import Store

MAX_ROWS = 500
MAX_COLUMNS = 100
MAX_CELL = 200  # characters
MAX_COPIED = 64 << 20  # bytes of a value that reading copies: plain Python data, frames with Python objects
_BYTES_SHOWN = 512
_SHOWN = ("arrow.", "numpy.", "pandas.", "polars.", "python.", "entrepot.blob")  # others run code of their packages
_VIEWED = (
    "arrow.",
    "numpy.",
    "python.bytes",
    "entrepot.blob",
    "polars.",
)  # codecs whose values are read without copies
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_CELL
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 20


def connect_to_read(address: str) -> Store:
    """Connect such that no value is ever unpickled.

    Raises:
        StoreUnavailable, AccessDenied: as ``entrepot.connect``.
    """
    return entrepot.connect(address, session="", scope="default", durable=False, allow_pickle=False)


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
    if not info.type.startswith(_SHOWN):
        return _nothing(f"there is no preview of {info.type or 'this type'}; pickled values are never opened here")
    if info.nbytes > MAX_COPIED and not info.type.startswith(_VIEWED):
        return _nothing(f"{info.nbytes} bytes of {info.type} would be copied to be shown")
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
    if name == "pyarrow.Table" or name == "pyarrow.RecordBatch":
        return _arrow(value, rows)
    if name == "pandas.DataFrame":
        return _pandas(value, rows)
    if name in ("pandas.Series", "pandas.Index"):
        return _pandas(value.to_frame(), rows)
    if name == "polars.DataFrame":
        return _polars(value, rows)
    if name == "polars.Series":
        return _polars(value.to_frame(), rows)
    if name == "numpy.ndarray" or name == "numpy.memmap":
        return _array(value, rows)
    if name.startswith("pyarrow."):
        return {"kind": "text", "text": _cut(str(value.type)), "note": ""} | _listed(value, rows)
    if isinstance(value, (list, tuple)):
        return _sequence(cast("Sequence[Any]", value), rows)
    if isinstance(value, dict):
        items: dict[Any, Any] = value
        columns = [{"name": "key", "type": ""}, {"name": "value", "type": ""}]
        cells = [[_cell(key), _cell(item)] for key, item in islice(items.items(), rows)]
        return _table(columns, cells, len(items), len(columns))
    return {"kind": "text", "text": _SHORT.repr(value), "note": ""}


def _arrow(value: Any, rows: int) -> dict[str, Any]:
    shown = value.slice(0, rows)
    fields = list(islice(value.schema, MAX_COLUMNS))
    columns = [{"name": field.name, "type": str(field.type)} for field in fields]
    by_column = [shown.column(index).to_pylist() for index in range(len(fields))]
    cells = [[_cell(item) for item in row] for row in zip(*by_column, strict=True)]
    return _table(columns, cells, value.num_rows, len(value.schema))


def _pandas(value: Any, rows: int) -> dict[str, Any]:
    shown = value.iloc[:rows, :MAX_COLUMNS]
    types = [str(dtype) for dtype in shown.dtypes]
    columns = [{"name": "", "type": str(shown.index.dtype)}]
    columns += [{"name": str(name), "type": dtype} for name, dtype in zip(shown.columns, types, strict=True)]
    cells = [[_cell(item) for item in row] for row in shown.itertuples(index=True, name=None)]
    return _table(columns, cells, value.shape[0], value.shape[1] + 1)


def _polars(value: Any, rows: int) -> dict[str, Any]:
    shown = value[:rows, :MAX_COLUMNS]
    columns = [{"name": name, "type": str(dtype)} for name, dtype in shown.schema.items()]
    cells = [[_cell(item) for item in row] for row in shown.iter_rows()]
    return _table(columns, cells, value.height, value.width)


def _array(value: Any, rows: int) -> dict[str, Any]:
    if value.dtype.hasobject:
        return _nothing(f"an array of {value.dtype}")
    about = {"kind": "array", "text": f"{value.dtype}, shape {'×'.join(map(str, value.shape)) or 'scalar'}"}
    if value.ndim == 0:
        return {**about, "columns": [], "rows": [[_cell(value.item())]], "note": ""}
    if value.ndim > 2:
        value = (
            value.reshape(value.shape[0], -1) if value.size and value.flags.c_contiguous else value[:0].reshape(0, 1)
        )
    two = value[:, None] if value.ndim == 1 else value
    shown = two[:rows, :MAX_COLUMNS]
    columns = [{"name": str(index), "type": str(value.dtype)} for index in range(shown.shape[1])]
    return _table(columns, [[_cell(item) for item in row] for row in shown.tolist()], *two.shape) | about


def _listed(value: Any, rows: int) -> dict[str, Any]:
    if not hasattr(value, "slice") or not hasattr(value, "to_pylist"):
        return {}
    columns = [{"name": "value", "type": str(value.type)}]
    return _table(columns, [[_cell(item)] for item in value.slice(0, rows).to_pylist()], len(value), 1)


def _sequence(value: Sequence[Any], rows: int) -> dict[str, Any]:
    columns = [{"name": type(value).__name__, "type": ""}]
    return _table(columns, [[_cell(item)] for item in value[:rows]], len(value), 1)


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
