"""What is in a pipe's stream: a header from each writer, and then record batches, bytes of text, or blocks of text
among columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from entrepot.errors import VersionMismatch

from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.parser import TextBlock
from entrepot_pipes.worker_directory import Form

_FORMAT = 1


@dataclass(frozen=True)
class Header:
    """The first chunk of each exporter."""

    form: Form
    dialect: dict[str, Any] | None
    rank: int

    def to_chunk(self) -> dict[str, Any]:
        """As a value of the store."""
        return {"pipe_format": _FORMAT, **asdict(self)}

    @classmethod
    def from_chunk(cls, chunk: dict[str, Any]) -> Header:
        """The header that :meth:`to_chunk` described.

        Raises:
            VersionMismatch: it is from another version.
        """
        if chunk["pipe_format"] != _FORMAT:
            raise VersionMismatch(
                f"the exporter writes pipes of format {chunk['pipe_format']!r}, and this process reads {_FORMAT}: "
                "use the same version of entrepot at both ends"
            )
        return cls(chunk["form"], chunk["dialect"], chunk["rank"])


def is_header(chunk: Any) -> bool:
    """Whether a chunk is a header."""
    return isinstance(chunk, dict) and "pipe_format" in chunk


def text_block_chunk(block: TextBlock) -> dict[str, Any]:
    """A block of text among columns, as a value of the store."""
    return {"text": block.data, "reason": block.reason, "dialect": block.dialect.to_dict()}


def text_block_of(chunk: Any) -> TextBlock | None:
    """The block of text that a chunk is; ``None``: it is something else."""
    if not isinstance(chunk, dict) or "text" not in chunk:
        return None
    return TextBlock(bytes(chunk["text"]), chunk["reason"], Dialect.from_dict(chunk["dialect"]))


def batches_of(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table; one without rows, if it has none."""
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    return rows.to_batches() or [
        pa.RecordBatch.from_arrays([_empty(field) for field in rows.schema], schema=rows.schema)
    ]


def sliced(batch: pa.RecordBatch, nbytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of about this size."""
    if batch.nbytes <= nbytes or batch.num_rows < 2:
        yield batch
        return
    rows = max(1, batch.num_rows * nbytes // batch.nbytes)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _empty(field: pa.Field) -> pa.Array:
    return pa.array([], field.type)
