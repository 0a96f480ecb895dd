"""What seams do with pipes: send a table, take one, or take its text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from entrepot_pipes.hooks.exact import exact_table
from entrepot_pipes.names import PipeName
from entrepot_pipes.text.dialect import Dialect

_BATCH_ROWS = 1 << 16
WriteRows = Callable[[int, int, str], None]

# What loads Arrow's parsers is imported in functions: the seam of these parsers is installed while they are loaded, and
# imports this module.


def send(
    target: PipeName, table: pa.Table, dialect: Dialect | None = None, write_rows: WriteRows | None = None
) -> None:
    """Write a table; readers that want text get it in this dialect.

    ``write_rows`` writes some of them to a file by the library's own means, for ``verify=``.
    """
    send_batches(target, table.schema, table.to_batches(max_chunksize=_BATCH_ROWS), dialect, write_rows)


def send_batches(
    target: PipeName,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    dialect: Dialect | None = None,
    write_rows: WriteRows | None = None,
) -> int:
    """Write batches as they come; return the number of rows."""
    from entrepot_pipes import pipe

    rows = 0
    with pipe.open_export(target, form="columns", dialect=dialect) as export:
        if write_rows is not None:
            export.verify_with(write_rows)
        for batch in batches:
            if batch.num_rows:
                export.write(batch)
                rows += batch.num_rows
        if not rows:
            export.write(schema.empty_table())
    return rows


@dataclass(frozen=True)
class Received:
    """Everything that came out of a pipe."""

    batches: list[pa.RecordBatch]
    schema: pa.Schema

    @property
    def table(self) -> pa.Table:
        """As columns; columns that later batches added are null before."""
        if all(batch.schema.equals(self.schema) for batch in self.batches):
            table = pa.Table.from_batches([batch.cast(self.schema) for batch in self.batches], self.schema)
        else:
            parts = [pa.Table.from_batches([batch]) for batch in self.batches]
            table = pa.concat_tables(parts, promote_options="default")
        from entrepot_pipes.text.csv_parser import DIALECT_KEY

        metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != DIALECT_KEY}
        return table.replace_schema_metadata(metadata or None)

    @property
    def source(self) -> Dialect | None:
        """The dialect of the text that the columns were parsed from; ``None``: they were columns before."""
        from entrepot_pipes.text.csv_parser import DIALECT_KEY

        described = (self.schema.metadata or {}).get(DIALECT_KEY)
        return Dialect.from_dict(json.loads(described)) if described else None

    def exact(self, delimiter: str = ",") -> pa.Table | None:
        """The table, if it is the same as what a program that expects this delimiter would read from its text."""
        source = self.source
        if source is not None and replace(source, newline="\n") != Dialect(delimiter=delimiter):
            return None
        same = all(batch.schema.types == self.schema.types for batch in self.batches)
        return exact_table(self.table) if same else None

    def text(self, dialect: Dialect | None = None) -> io.BytesIO:
        """As text: in the dialect that it had, or else in this one."""
        from entrepot_pipes.text.writer import TextWriter

        writer = TextWriter(self.source or dialect)
        parts = [writer.write(batch) for batch in self.batches]
        return io.BytesIO(b"".join([*parts, writer.finish(self.schema)]))

    def parquet(self) -> io.BytesIO:
        """As a Parquet file, for calls that want more of one than columns."""
        import pyarrow.parquet as pq

        file: Any = io.BytesIO()
        pq.write_table(self.table, file)
        file.seek(0)
        return io.BytesIO(file.getvalue())


def receive(source: PipeName) -> Received:
    """Read everything as columns."""
    from entrepot_pipes import pipe

    with pipe.open_import(source, form="columns") as opened:
        batches = list(opened)
        return Received(batches, batches[0].schema if batches else opened.schema)
