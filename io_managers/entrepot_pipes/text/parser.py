"""Text that arrives in blocks, as record batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from entrepot_pipes.text.blocks import TextBlock
from entrepot_pipes.text.csv_parser import CsvParser
from entrepot_pipes.text.detect import detect_kind, strip_bom
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.json_parser import JsonParser

__all__ = ["TextBlock", "TextParser"]

_BLOCK_BYTES = 1 << 20
# After so many bytes, the kind of a text is plain.
_KIND_BYTES = 64


class TextParser:
    """Makes record batches of text; what columns cannot keep exactly is passed as :class:`TextBlock`.

    Columns are integers of 64 bits, doubles, booleans (``true``, ``false``), dates (``2024-05-01``) and text; in JSON
    also lists and objects. Everything else, such as ``007`` and times, stays text. The types are those of the first
    block; with JSON, later blocks may add columns.

    Args:
        dialect: of the text; ``None``: as the first block shows.
        infer: whether columns get types. Without, all columns of CSV are text, and each field is kept to the letter:
            the way from one dialect to another.
        block_bytes: how many bytes are parsed at once, at least.
        hints: fields of the dialect that are known, where ``dialect`` is not given.

    Used by one thread at a time.
    """

    def __init__(
        self,
        dialect: Dialect | None = None,
        *,
        infer: bool = True,
        block_bytes: int = _BLOCK_BYTES,
        hints: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = dialect
        self._hints = hints
        self._infer = infer
        self._block_bytes = block_bytes
        self._beginning = bytearray()  # until the kind of the text is known
        self._parser: CsvParser | JsonParser | None = self._make(dialect.kind) if dialect else None

    @property
    def dialect(self) -> Dialect | None:
        """Of the text, as soon as it is known."""
        return self._parser.dialect if self._parser else None

    @property
    def last_block(self) -> bytes:
        """The records, in UTF-8 and without a header, that the last batch was parsed from."""
        return self._parser.last_block if self._parser else b""

    @property
    def schema(self) -> pa.Schema | None:
        """Of the batches so far, as soon as it is known."""
        return self._parser.schema if self._parser else None

    def feed(self, data: bytes | bytearray | memoryview) -> list[pa.RecordBatch | TextBlock]:
        """Take the next bytes, cut anywhere; return what is complete, in order."""
        if self._parser is None:
            self._beginning += data
            if len(self._beginning) < max(_KIND_BYTES, self._block_bytes):
                return []
            return self._begin()
        return self._parser.feed(bytes(data))

    def finish(self) -> list[pa.RecordBatch | TextBlock]:
        """The text has ended: return what is left. Text with a header alone gives a batch without rows."""
        begun = self._begin() if self._parser is None else []
        assert self._parser is not None
        return [*begun, *self._parser.finish()]

    def _begin(self) -> list[pa.RecordBatch | TextBlock]:
        data, encoding = strip_bom(bytes(self._beginning))
        kind = detect_kind(data[:4096].decode(encoding or "utf-8", errors="replace"))
        self._parser = self._make(kind)
        beginning, self._beginning = bytes(self._beginning), bytearray()
        return self._parser.feed(beginning)

    def _make(self, kind: str) -> CsvParser | JsonParser:
        if kind == "json":
            return JsonParser(self._given, self._block_bytes)
        return CsvParser(self._given, self._infer, self._block_bytes, self._hints)
