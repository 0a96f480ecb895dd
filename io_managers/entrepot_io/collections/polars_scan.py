"""Collections of tables as Polars frames, eager and lazy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from entrepot_io.collections import tables

if TYPE_CHECKING:
    from entrepot import Collection


def frame(collection: Collection) -> pl.DataFrame:
    """All tables as one frame."""
    tables.check(collection)
    parts = [_to_frame(value, None) for value in collection]
    return pl.concat(parts, rechunk=False) if parts else pl.DataFrame(schema=_schema(collection))


def scan(collection: Collection) -> pl.LazyFrame:
    """All tables as a lazy frame; members are read one by one as needed, and none after the last requested row."""
    tables.check(collection)

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        remaining = n_rows
        # With a row limit the end is near, so a prefetched member may never be needed.
        values = iter(collection) if n_rows is None else collection.iterate(prefetch=0)
        for value in values:
            member_frame = _to_frame(value, with_columns)
            del value
            if remaining is not None:
                member_frame = member_frame.head(remaining)
                remaining -= member_frame.height
            yield member_frame if predicate is None else member_frame.filter(predicate)
            del member_frame
            if remaining == 0:
                return

    return register_io_source(source, schema=_schema(collection), is_pure=True)


def _schema(collection: Collection) -> Any:
    if collection.type == "polars.DataFrame" and len(collection):
        return collection[0].schema  # exact even for types that Arrow lacks
    return _to_frame(tables.schema_of(collection).empty_table(), None).schema


def _to_frame(value: Any, columns: list[str] | None) -> pl.DataFrame:
    if isinstance(value, pl.DataFrame):
        return value if columns is None else value.select(columns)
    converted = pl.from_arrow(tables.as_table(value, None, columns))
    assert isinstance(converted, pl.DataFrame)
    return converted
