"""Describes a member: a table with columns, a tensor with rows, or any other value."""

from __future__ import annotations

import hashlib
from typing import Any

from entrepot.collection_plugins import TABLE, TENSOR, ValueTraits

from entrepot_io.type_info import type_name

# A layout is compared and displayed; for wider tables the rest is replaced by a digest.
_LAYOUT_CHARACTERS = 2000


def describe(value: Any) -> ValueTraits:
    """The traits of a member.

    Args:
        value: anything; imports no library but the value's own.
    """
    kind = type_name(value)
    root = type(value).__module__.partition(".")[0]
    if root == "pyarrow" and kind in ("pyarrow.Table", "pyarrow.RecordBatch"):
        return _arrow_table(value, kind)
    if root == "pandas" and kind == "pandas.DataFrame":
        return _pandas_table(value, kind)
    if root == "polars" and kind == "polars.DataFrame":
        return _polars_table(value, kind)
    if root == "numpy" and kind in ("numpy.ndarray", "numpy.memmap") and not value.dtype.hasobject:
        return _tensor(value, "numpy.ndarray")
    if root == "torch" and kind == "torch.Tensor":
        return _tensor(value, kind)
    return ValueTraits(kind)


def layout_of(schema: Any) -> str:
    """An Arrow schema as comparable text: names and types of the columns, without metadata."""
    return _shortened(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def _arrow_table(value: Any, kind: str) -> ValueTraits:
    schema = value.schema
    message = schema.serialize().to_pybytes()
    return ValueTraits(kind, TABLE, layout_of(schema), value.num_rows, schema=message)


def _polars_table(value: Any, kind: str) -> ValueTraits:
    layout = _shortened(f"{name}: {dtype}" for name, dtype in value.schema.items())
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return ValueTraits(kind, TABLE, layout, value.height)
    try:
        message = value.clear().to_arrow().schema.serialize().to_pybytes()
    except Exception:  # columns of arbitrary objects: Polars raises several kinds of errors
        return ValueTraits(kind, TABLE, layout, value.height)
    return ValueTraits(kind, TABLE, layout, value.height, schema=message)


def _pandas_table(value: Any, kind: str) -> ValueTraits:
    columns = _shortened(f"{name}: {dtype}" for name, dtype in zip(value.columns, value.dtypes, strict=True))
    try:
        import pyarrow as pa
    except ImportError:
        return ValueTraits(kind, TABLE, columns, len(value))
    try:
        schema = pa.Schema.from_pandas(value)
    except (pa.ArrowException, TypeError):  # columns of arbitrary objects: valid members, but not one Arrow stream
        return ValueTraits(kind, TABLE, columns, len(value))
    return ValueTraits(kind, TABLE, layout_of(schema), len(value), schema=schema.serialize().to_pybytes())


def _tensor(value: Any, kind: str) -> ValueTraits:
    layout = f"{value.dtype} with {value.ndim} axes"
    if value.ndim == 0:
        return ValueTraits(kind, TENSOR, layout)
    return ValueTraits(kind, TENSOR, layout, int(value.shape[0]), tuple(int(length) for length in value.shape[1:]))


def _shortened(parts: Any) -> str:
    text = ", ".join(parts)
    if len(text) <= _LAYOUT_CHARACTERS:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:_LAYOUT_CHARACTERS]}... ({digest})"
