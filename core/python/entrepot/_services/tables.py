"""Rows that services are given, as Arrow tables of which rows can be gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot.errors import UnsupportedType

if TYPE_CHECKING:
    import pyarrow as pa


def to_table(rows: Any) -> pa.Table:
    """Return rows as a table.

    Raises:
        UnsupportedType: they are none.
    """
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return _without_views(rows)
    if isinstance(rows, pa.RecordBatch):
        return _without_views(pa.Table.from_batches([rows]))
    if hasattr(rows, "__arrow_c_stream__"):
        return _without_views(pa.table(rows))
    raise UnsupportedType(
        f"rows must be a pyarrow.RecordBatch or Table, or have the Arrow C stream interface; got {type(rows).__name__}"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Return the table with views, as Polars has them, as ordinary text and bytes, of which Arrow can gather rows."""
    import pyarrow as pa

    large = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not any(field.type in large for field in table.schema):
        return table
    fields = [field.with_type(large.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
