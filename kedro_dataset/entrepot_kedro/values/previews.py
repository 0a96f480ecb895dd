"""What Kedro-Viz shows of a value: the first rows of a table with its schema, and sizes."""

from __future__ import annotations

from typing import Any

from entrepot.errors import InvalidArgument
from entrepot.phrases import human_bytes
from entrepot_io.table_info import table_info
from entrepot_io.type_info import shape_of, type_name


def preview_of(value: Any, nbytes: int, rows: int) -> dict[str, Any]:
    """Return a preview in the form of Kedro-Viz's tables, with ``schema``, ``rows`` and ``nbytes`` for other readers.

    Kedro-Viz shows nothing but ``columns`` and ``data``, so these have types and sizes too.

    Args:
        value: the value.
        nbytes: its size in the store.
        rows: how many rows of a table.

    Raises:
        InvalidArgument: ``rows`` is no such number.
    """
    if not isinstance(rows, int) or rows < 0:
        raise InvalidArgument(
            f"nrows of a preview must be a number from 0 on, not {rows!r}: see preview_args in the entry's metadata"
        )
    info = table_info(value, rows)
    if info is None:
        shape = shape_of(value)
        facts = {"type": type_name(value), "size": human_bytes(nbytes)}
        if shape is not None:
            facts["shape"] = " x ".join(map(str, shape))
        if (dtype := getattr(value, "dtype", None)) is not None:
            facts["dtype"] = str(dtype)
        return {"index": [0], "columns": list(facts), "data": [list(facts.values())], "nbytes": nbytes}
    schema = {column.name: column.type for column in info.columns}
    # By position: two columns of a pandas frame may have one name.
    columns = [f"{name}: {column.type}" for name, column in zip(info.head_columns, info.columns, strict=False)]
    number = "rows unknown" if info.rows is None else f"{info.rows:,} rows"
    data = [list(row) for row in info.head]
    if columns:
        size = f"{number} x {len(info.columns)} columns, {human_bytes(nbytes)}"
        data.append([size, *[""] * (len(columns) - 1)])
    return {
        "index": [*range(len(info.head)), "size"][: len(data)],
        "columns": columns,
        "data": data,
        "schema": schema,
        "rows": info.rows,
        "nbytes": nbytes,
    }
