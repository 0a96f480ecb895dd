"""Blocks of JSON objects to record batches."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.json as pajson
from entrepot.errors import InvalidArgument

from entrepot_pipes.text.blocks import TextBlock, matches
from entrepot_pipes.text.detect import detect, strip_bom
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.json_keys import KeyFit, KeyHeader

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see

_LONGEST_OBJECT = 64 << 20
_BLANK = " \t\r\n"
# Between the end of one object and the beginning of the next on another line. Neither is part of an object: within
# one, a comma would follow, and a string contains no end of line.
_BETWEEN = re.compile(rb"\}[ \t\r]*\n\s*(?=\{)")

# A number of 16 digits and more, without a fraction or exponent: a double may round it. In RE2's syntax. Fractions of
# so many digits are in every table of doubles, and to look at each object takes several times as long as parsing.
LONG_INTEGER = r"(?:^|[^.0-9eE+\-])-?[0-9]{16,}(?:[^.0-9eE]|$)"


class JsonParser:
    """Parses JSON objects, one after the other on lines, or in one array, that arrive in blocks cut anywhere.

    States: *beginning*, *columns* and *text*, as :class:`~entrepot_pipes.text.csv_parser.CsvParser`.

    Used by one thread at a time.
    """

    def __init__(self, dialect: Dialect | None, block_bytes: int) -> None:
        self.dialect = dialect
        self.schema: pa.Schema | None = None
        self.last_block = b""  # of objects, of which the last batch was made
        self._header = KeyHeader()
        self._block_bytes = block_bytes
        self._pending = bytearray()  # in UTF-8 once the dialect is known
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False
        self._text_reason = ""  # not empty in the state *text*
        self._in_array = False  # the array's bracket was taken

    def feed(self, data: bytes) -> list[pa.RecordBatch | TextBlock]:
        """Take a block; return what is complete."""
        self._pending += self._decoded(data) if self._decoder else data
        if self._text_reason:
            return self._rest_as_text()
        return self._parse(final=False) if len(self._pending) >= self._block_bytes else []

    def finish(self) -> list[pa.RecordBatch | TextBlock]:
        """The text has ended: return what is left."""
        if self._decoder:
            self._pending += self._decoded(b"", final=True)
        return self._rest_as_text() if self._text_reason else self._parse(final=True)

    def _parse(self, final: bool) -> list[pa.RecordBatch | TextBlock]:
        if not self._begun:
            self._begin(final)
        assert self.dialect is not None
        data = bytes(self._pending)
        try:
            block, rest = self._array_block(data, final) if self.dialect.layout == "array" else _lines(data, final)
        except ValueError as error:
            self._text_reason = f"this is not an array of objects: {error}"
            return self._rest_as_text()
        self._pending = bytearray(rest)
        if not block.strip():
            if len(rest) > _LONGEST_OBJECT:
                self._text_reason = f"no object ends within {len(rest):,} bytes"
                return self._rest_as_text()
            return []
        self.last_block = block
        return [self._columns(block)]

    def _begin(self, final: bool) -> None:
        data, marked = strip_bom(bytes(self._pending))
        self.dialect = self.dialect or detect(bytes(self._pending), kind="json")
        encoding = marked or self.dialect.encoding
        if codecs.lookup(encoding).name != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding)("strict")
            data = self._decoded(data, final)
        self._begun, self._pending = True, bytearray(data)

    def _decoded(self, data: bytes, final: bool = False) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(data, final).encode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the text is not what its dialect or byte order mark says: {error}") from error

    # --- columns

    def _columns(self, block: bytes) -> pa.RecordBatch | TextBlock:
        try:
            table = _read(block, self.schema)
            batch = _one_batch(table)
            self._check(block, batch)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, _Inexact) as error:
            return self._as_text(block, str(error))
        self._header.add(batch.schema.names)
        self.schema = batch.schema
        return batch

    def _check(self, block: bytes, batch: pa.RecordBatch) -> None:
        names = dict.fromkeys(batch.schema.names)  # tens of thousands are looked up: not in a list
        known_keys = [name for name in self._header.keys if name in names]
        if not known_keys:
            first = next(_objects(block), {})
            known_keys = [name for name in first if name in names]
        not_new = set(known_keys)
        new = [name for name in names if name not in not_new]
        if known_keys and new:
            has_known, has_new = _any_valid(batch, known_keys), _any_valid(batch, new)
            alone = pc.and_(has_new, pc.invert(has_known))
            row = pc.index(alone, True).as_py()
            if row >= 0 and KeyHeader(known_keys).fit(new) is KeyFit.DISJOINT:
                raise _Inexact(f"object {row + 1} of the block has no key in common with those before it")
        if matches(block, LONG_INTEGER) and any(_has_double(field.type) for field in batch.schema):
            for record in _objects(block):
                _refuse_rounded(record, batch.schema)

    def _as_text(self, block: bytes, reason: str) -> TextBlock:
        assert self.dialect is not None
        # The objects of an array are one a line here, as the block is not an array by itself.
        dialect = Dialect(kind="json", newline="\n", encoding=self.dialect.encoding)
        data = block.decode().encode(dialect.encoding) if self._decoder else block
        return TextBlock(data, reason, self.dialect if self.dialect.layout == "lines" or self._text_reason else dialect)

    def _rest_as_text(self) -> list[pa.RecordBatch | TextBlock]:
        data, self._pending = bytes(self._pending), bytearray()
        return [self._as_text(data, self._text_reason)] if data else []

    # --- arrays

    def _array_block(self, data: bytes, final: bool) -> tuple[bytes, bytes]:
        """The whole objects of an array that ``data`` begins with, one a line; the rest of it."""
        try:
            text, tail = data.decode(), b""
        except UnicodeDecodeError as error:  # cut within a character
            text, tail = data[: error.start].decode(), data[error.start :]
        at, lines = _skip(text, 0), []
        if not self._in_array:
            if at == len(text):
                return b"", data
            if text[at] != "[":
                raise ValueError(f"it begins with {text[at]!r}")
            self._in_array, at = True, at + 1
        decoder, done = json.JSONDecoder(), at
        while (at := _skip(text, at, ",")) < len(text) and text[at] != "]":
            try:
                value, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                if final:
                    raise
                break
            if not isinstance(value, dict):
                raise ValueError(f"{text[at:end][:40]!r} is not an object")
            lines.append(json.dumps(value, ensure_ascii=False) if "\n" in text[at:end] else text[at:end])
            done = at = end
        if at < len(text) and text[at] == "]":
            done = at
            if text[at + 1 :].strip():
                raise ValueError(f"{text[at + 1 :].strip()[:40]!r} follows it")
        elif final and not tail:
            raise ValueError("it has no end")
        return "\n".join(lines).encode(), text[done:].encode() + tail if not final else b""


class _Inexact(Exception):
    """The block as columns would not say the same."""


def _skip(text: str, at: int, also: str = "") -> int:
    skipped = _BLANK + also
    while at < len(text) and text[at] in skipped:
        at += 1
    return at


def _lines(data: bytes, final: bool) -> tuple[bytes, bytes]:
    if final:
        return data, b""
    window, start = 64 * 1024, len(data)
    while start > 0:  # the last place between two objects, looked for from the end
        start = max(0, len(data) - window)
        boundary = None
        for boundary in _BETWEEN.finditer(data, start):  # noqa: B007
            pass
        if boundary is not None:
            return data[: boundary.end()], data[boundary.end() :]
        window *= 8
    return b"", data


def _read(block: bytes, schema: pa.Schema | None) -> pa.Table:
    """The objects as a table; fields that Arrow would take for times stay text."""
    read = pajson.ReadOptions(block_size=min(len(block) + 1, (1 << 31) - 1))

    def parsed(explicit: pa.Schema | None) -> pa.Table:
        options = pajson.ParseOptions(explicit_schema=explicit, newlines_in_values=True)
        return pajson.read_json(pa.BufferReader(block), read_options=read, parse_options=options)

    table = parsed(_known_types(schema) if schema is not None else None)
    texts = pa.schema([pa.field(field.name, _without_times(field.type)) for field in table.schema])
    return table if texts.equals(table.schema) else parsed(_known_types(texts))


def _known_types(schema: pa.Schema) -> pa.Schema:
    """What is known of the columns: those that were null so far may become anything."""
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _without_times(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    return type_


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches: list[Any] = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def _any_valid(batch: pa.RecordBatch, names: list[str]) -> pa.Array:
    valid = pc.is_valid(batch.column(names[0]))
    for name in names[1:]:
        valid = pc.or_(valid, pc.is_valid(batch.column(name)))
    return valid


def _has_double(type_: pa.DataType) -> bool:
    children = [type_.field(i).type for i in range(type_.num_fields)]
    return bool(pa.types.is_floating(type_)) or any(_has_double(child) for child in children)


def _objects(block: bytes) -> Iterator[dict[str, Any]]:
    text, decoder, at = block.decode(), json.JSONDecoder(), 0
    while (at := _skip(text, at)) < len(text):
        value, at = decoder.raw_decode(text, at)
        if isinstance(value, dict):
            yield value


def _refuse_rounded(value: Any, type_: Any) -> None:
    """Refuse integers that a column of doubles would round."""
    if isinstance(value, dict):
        for name, child in value.items():
            _refuse_rounded(child, type_.field(name).type)
    elif isinstance(value, list):
        for child in value:
            _refuse_rounded(child, type_.value_type)
    elif isinstance(value, int) and pa.types.is_floating(type_) and abs(value) >= 2**53:
        raise _Inexact(f"the integer {value} is in a column of doubles, which would round it")
