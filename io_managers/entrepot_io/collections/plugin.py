"""Plugin behind ``entrepot.Collection``'s tables and tensors.

The core finds this module through the entry-point group ``entrepot.collections``; each function is documented at the
method of ``entrepot.Collection`` with the same name. Importing this module imports no data library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

from entrepot_io.collections.traits import describe as describe

if TYPE_CHECKING:
    from entrepot import Collection


def schema(collection: Collection) -> Any:
    from entrepot_io.collections import tables

    return tables.schema_of(collection)


def to_reader(collection: Collection, columns: Sequence[str] | None = None) -> Any:
    from entrepot_io.collections import tables

    return tables.reader(collection, columns)


def to_arrow(collection: Collection) -> Any:
    from entrepot_io.collections import tables

    return tables.table(collection)


def to_polars(collection: Collection) -> Any:
    from entrepot_io.collections import polars_scan

    return polars_scan.frame(collection)


def scan_polars(collection: Collection) -> Any:
    from entrepot_io.collections import polars_scan

    return polars_scan.scan(collection)


def to_duckdb(collection: Collection, connection: Any = None) -> Any:
    from entrepot_io.collections import tables

    tables.check(collection)
    import duckdb

    return duckdb.from_arrow(collection, connection=connection or duckdb.default_connection())


def iter_batches(collection: Collection, rows: int) -> Iterator[Any]:
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise InvalidArgument(f"the rows of a batch must be a whole number, 1 or more, but got {rows!r}")
    if collection.kind == "table":
        from entrepot_io.collections import tables

        return tables.batches(collection, rows)
    from entrepot_io.collections import tensors

    return tensors.batches(collection, rows)


def torch_dataset(collection: Collection, over: str, transform: Callable[[Any], Any] | None) -> Any:
    from entrepot_io.collections import tensors

    if over not in ("rows", "members"):
        raise InvalidArgument(f"a data set iterates over 'rows' or 'members', but got over={over!r}")
    tensors.check(collection, rows=over == "rows")
    from entrepot_io.collections import torch_datasets

    return (
        torch_datasets.RowDataset(collection, transform)
        if over == "rows"
        else torch_datasets.MemberDataset(collection, transform)
    )
