"""Blocks of CSV text to record batches."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from entrepot.errors import InvalidArgument

from entrepot_pipes.text.blocks import TextBlock, end_of_records, first_record, well_quoted
from entrepot_pipes.text.csv_values import INFERRED, inexact_columns
from entrepot_pipes.text.detect import detect, strip_bom
from entrepot_pipes.text.dialect import Dialect

# A record is not longer than this; a text without an end of record for so long has stray quotes.
_LONGEST_RECORD = 64 << 20
# In the metadata of the schema: the dialect of the text that the columns were parsed from.
DIALECT_KEY = b"entrepot.dialect"


class CsvParser:
    """Parses CSV text that arrives in blocks, which may be cut anywhere.

    States: *beginning* until the first block of whole records is there, which decides dialect, names and types; then
    *columns*: a block whose fields do not fit those types is passed as text; and *text*, from the first block in which
    records cannot be told apart until the end.

    Used by one thread at a time.
    """

    def __init__(
        self, dialect: Dialect | None, infer: bool, block_bytes: int, hints: Mapping[str, Any] | None = None
    ) -> None:
        self.dialect = dialect
        self.schema: pa.Schema | None = None
        self.last_block = b""  # of records, of which the last batch was made
        self._detected = dialect is None
        self._hints = hints
        self._infer = infer
        self._block_bytes = block_bytes
        self._pending = bytearray()  # what has arrived of the next block, in UTF-8 once the dialect is known
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False
        self._text_reason = ""  # not empty in the state *text*
        self._types: dict[str, pa.DataType] = {}  # by the column's position, as names may occur twice

    def feed(self, data: bytes) -> list[pa.RecordBatch | TextBlock]:
        """Take a block; return what is complete."""
        self._pending += self._decoded(data) if self._decoder else data
        if self._text_reason:
            return self._rest_as_text()
        if len(self._pending) < self._block_bytes:
            return []
        return self._parse(final=False)

    def finish(self) -> list[pa.RecordBatch | TextBlock]:
        """The text has ended: return what is left. A missing end of line is no error."""
        if self._decoder:
            self._pending += self._decoded(b"", final=True)
        return self._rest_as_text() if self._text_reason else self._parse(final=True)

    # --- blocks

    def _parse(self, final: bool) -> list[pa.RecordBatch | TextBlock]:
        if not self._begun and not self._begin(final):
            return []
        assert self.dialect is not None
        data = bytes(self._pending)
        end = len(data) if final else end_of_records(data, self.dialect)
        if end == 0:
            if len(data) > _LONGEST_RECORD:
                return self._fall_back(f"no record ends within {len(data):,} bytes: are quotes left open?")
            return []
        block, rest = data[:end], data[end:]
        if not well_quoted(block, self.dialect):
            return self._fall_back("a quote is neither at the beginning nor at the end of a field")
        if self._detected and "\\N" in self.dialect.nulls and block.count(b"\\") != block.count(b"\\N"):
            return self._fall_back("backslashes stand for something else than nulls")
        self.last_block = block
        if self.schema is None:
            try:
                return self._first(block, rest, final)
            except pa.ArrowInvalid as error:
                return self._fall_back(str(error))
        self._pending = bytearray(rest)
        return [self._later(block)]

    def _begin(self, final: bool) -> bool:
        """Decide the dialect, as soon as a whole record or everything is there; take off mark and encoding."""
        data, marked = strip_bom(bytes(self._pending))
        dialect = self.dialect or detect(bytes(self._pending), "csv", self._hints)
        encoding = marked or dialect.encoding
        if codecs.lookup(encoding).name != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding)("strict")
            data = self._decoded(data, final)
        elif not final and end_of_records(data, dialect) == 0:
            return False
        self.dialect, self._begun, self._pending = dialect, True, bytearray(data)
        return True

    def _first(self, block: bytes, rest: bytes, final: bool) -> list[pa.RecordBatch | TextBlock]:
        """Names and types from the first block with records."""
        assert self.dialect is not None
        blank = len(block) - len(block.lstrip(b"\r\n"))  # lines before the first record; nulls of a single column
        record = first_record(block[blank:], self.dialect)
        fields = self._read_texts(record)
        names = [str(name) for name in fields] if self.dialect.header else [f"f{i}" for i in range(len(fields))]
        records = block[blank + len(record) :] if self.dialect.header else block
        columns = [str(position) for position in range(len(names))]
        if not records and not final:
            return []
        self._types = self._infer_types(records, columns)
        batch = self._read(records, columns, self._types)
        typed = [(name, self._types[at]) for name, at in zip(names, columns, strict=True)]
        self.schema = pa.schema(typed, metadata={DIALECT_KEY: json.dumps(self.dialect.to_dict())})
        self._pending, self.last_block = bytearray(rest), records
        return [self._named(batch)]

    def _infer_types(self, records: bytes, columns: list[str]) -> dict[str, pa.DataType]:
        if not self._infer or not records:
            return dict.fromkeys(columns, pa.string())
        batch = self._read(records, columns, {})
        if any(pa.types.is_binary(field.type) for field in batch.schema):
            raise pa.ArrowInvalid("the text is not in UTF-8")
        types = {f.name: f.type if f.type in INFERRED else pa.string() for f in batch.schema}
        for name in self._inexact(records, batch):
            types[name] = pa.string()
        return types

    def _later(self, block: bytes) -> pa.RecordBatch | TextBlock:
        assert self.dialect is not None
        try:
            batch = self._read(block, list(self._types), self._types)
        except pa.ArrowInvalid as error:
            return self._as_text(block, str(error))
        inexact = self._inexact(block, batch)
        if inexact:
            at, example = next(iter(inexact.items()))
            name = self._named(batch).schema.field(int(at)).name
            return self._as_text(
                block, f"column {name!r} has {example!r}, which {self._types[at]} cannot keep as it is"
            )
        return self._named(batch)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    # --- text

    def _fall_back(self, reason: str) -> list[pa.RecordBatch | TextBlock]:
        """Enter the state *text*."""
        self._text_reason = reason
        return self._rest_as_text()

    def _rest_as_text(self) -> list[pa.RecordBatch | TextBlock]:
        data, self._pending = bytes(self._pending), bytearray()
        return [self._as_text(data, self._text_reason)] if data else []

    def _as_text(self, data: bytes, reason: str) -> TextBlock:
        assert self.dialect is not None
        if self._decoder:
            data = data.decode().encode(self.dialect.encoding)
        return TextBlock(data, reason, self.dialect)

    def _decoded(self, data: bytes, final: bool = False) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(data, final).encode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the text is not what its dialect or byte order mark says: {error}") from error

    # --- Arrow

    def _inexact(self, block: bytes, batch: pa.RecordBatch) -> dict[str, str]:
        def as_text(names: list[str]) -> pa.RecordBatch:
            columns = [field.name for field in batch.schema]
            return self._read(block, columns, dict.fromkeys(names, pa.string()), names)

        assert self.dialect is not None
        return inexact_columns(block, batch, self.dialect, as_text)

    def _read_texts(self, record: bytes) -> list[str]:
        """The fields of one record."""
        assert self.dialect is not None
        if not record.strip(b"\r\n"):
            return [""]
        options = self._parse_options(record, 0)
        read = pacsv.ReadOptions(autogenerate_column_names=True, block_size=len(record) + 1)
        convert = pacsv.ConvertOptions(default_column_type=pa.string())
        table = pacsv.read_csv(pa.BufferReader(record), read, options, convert)
        return [column[0].as_py() for column in table.columns]

    def _read(
        self, block: bytes, columns: list[str], types: dict[str, pa.DataType], only: list[str] | None = None
    ) -> pa.RecordBatch:
        assert self.dialect is not None
        if not block:
            return _empty(pa.schema([(name, types[name]) for name in columns]))
        # One chunk, whatever the length of a record; the columns are converted in parallel.
        read = pacsv.ReadOptions(column_names=columns, block_size=min(len(block) + 1, (1 << 31) - 1))
        convert = pacsv.ConvertOptions(
            column_types=types,
            null_values=list(self.dialect.nulls),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true"],
            false_values=["false"],
            include_columns=only or [],
        )
        options = self._parse_options(block, len(columns))
        table = pacsv.read_csv(pa.BufferReader(block), read, options, convert).combine_chunks()
        batches: list[Any] = table.to_batches()
        return batches[0] if batches else _empty(table.schema)

    def _parse_options(self, block: bytes, columns: int) -> pacsv.ParseOptions:
        assert self.dialect is not None
        quote = self.dialect.quote
        return pacsv.ParseOptions(
            delimiter=self.dialect.delimiter,
            quote_char=quote if quote is not None else False,
            double_quote=quote is not None,
            escape_char=self.dialect.escape if self.dialect.escape is not None else False,
            newlines_in_values=(quote is not None and block.find(quote.encode()) >= 0)
            or self.dialect.escape is not None,
            ignore_empty_lines=columns != 1,  # an empty line is a record with a null there
        )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
