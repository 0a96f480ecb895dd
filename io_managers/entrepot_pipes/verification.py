"""``verify=N``: the first N rows of each exporter, and samples of later blocks, go by file too, and are compared.

The exporter writes the file from what it was given, before that is parsed, sent or written anew. The importer reads it
with Python's ``csv`` and ``json``, which no pipe uses for columns, and compares it with what came through the pipe.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from entrepot.errors import EntrepotError

from entrepot_pipes.text.blocks import end_of_records
from entrepot_pipes.text.dialect import Dialect

# Of a sampled block, so many rows (or bytes, if these pass as they are) are compared; of the blocks, every 32nd if text
# is parsed or written, which takes longer and where more can go wrong, and otherwise every 128th. All are such that
# verification takes a few percent of a transfer's time.
SAMPLED_ROWS = 200
_SAMPLED_BYTES = 64 << 10
_EVERY_CONVERTED, _EVERY_OTHER = 32, 128
_MOST_RECORD_BYTES = 1 << 10  # of a sampled record, on average; of longer ones, fewer are compared
_PREFIX = "entrepot-verify-"
_OLD_SECONDS = 24 * 3600.0  # files of exporters that were killed are removed by others after this

WriteRows = Callable[[int, int, str], None]
"""Writes rows, from and up to but without, to a file with a header: by the exporting library's own means."""


class VerificationFailed(EntrepotError, ValueError):
    """What came through a pipe differs from what went by file, or the file cannot be written or read."""

    code = "verification_failed"
    short_code = "E411"


@dataclass(frozen=True)
class Sample:
    """Where the same rows are in a file.

    Args:
        file: its path.
        first_row: of the exporter's rows, counted from 1; 0: not known, as with later blocks of bytes.
        first_byte: of bytes, where they are in what the exporter wrote.
        rows: how many rows are compared; 0: the bytes are.
        dialect: of the text in the file.
        header: whether the file's first record has names; names are compared as well.
        part: whether the file may have fewer records than ``rows``.
    """

    file: str
    first_row: int
    rows: int
    dialect: dict[str, Any]
    header: bool
    first_byte: int = 0
    part: bool = False


def sampled_chunk(chunk: Any, sample: Sample) -> dict[str, Any]:
    """A chunk that is compared, as a value of the store."""
    return {"sampled": chunk, "sample": asdict(sample)}


def sample_of(chunk: Any) -> tuple[Any, Sample | None]:
    """A chunk, and with what it is to be compared."""
    if isinstance(chunk, dict) and "sampled" in chunk:
        return chunk["sampled"], Sample(**chunk["sample"])
    return chunk, None


class SampleWriter:
    """Decides which blocks of an exporter are compared, and writes them to files. For one thread at a time."""

    def __init__(self, rows: int, converted: bool) -> None:
        self._first_rows = rows
        self._every = _EVERY_CONVERTED if converted else _EVERY_OTHER
        self._rows = 0  # before the next block; bytes that pass as they are are counted up to the first N only
        self._bytes = 0
        self._blocks = 0
        self._files: list[str] = []  # that were written
        self.write_rows: WriteRows | None = None

    @property
    def wanted(self) -> bool:
        """Whether the next block is compared."""
        return self._rows < self._first_rows or self._blocks % self._every == 0

    def passed(self, block: pa.RecordBatch | bytes) -> None:
        """A block has been sent."""
        if isinstance(block, bytes):
            # Counting takes as long as sending does.
            self._rows += block.count(b"\n") if self._rows < self._first_rows else 0
            self._bytes += len(block)
        else:
            self._rows += block.num_rows
        self._blocks += 1

    def of_bytes(self, data: bytes) -> Sample:
        """The sample of text that passes as it is; rows are ends of lines."""
        left = max(0, self._first_rows - self._rows)
        end = len(data) if left and data.count(b"\n") < left else min(len(data), _SAMPLED_BYTES)
        sample = self._sample(0, Dialect(), False, lambda file: Path(file).write_bytes(data[:end]))
        return replace(sample, first_row=sample.first_row if left else 0, first_byte=self._bytes)

    def of_text(self, records: bytes, rows: int, dialect: Dialect) -> Sample:
        """The sample of text that was parsed; ``records`` without a header, in UTF-8."""
        count = self._count(rows)
        limit = max(_SAMPLED_BYTES, count * _MOST_RECORD_BYTES)
        end = end_of_records(records[:limit], dialect) if len(records) > limit and dialect.kind == "csv" else 0
        part = records[:end] if end else records
        sample = self._sample(count, dialect, False, lambda file: Path(file).write_bytes(part))
        return replace(sample, part=bool(end))

    def of_columns(self, batch: pa.RecordBatch) -> Sample:
        """The sample of columns: written by the library that gave them, or else by Python's ``csv``."""
        count = self._count(batch.num_rows)
        own, start = self.write_rows, self._rows

        def write(file: str) -> None:
            if own is not None:
                own(start, start + count, file)
                return
            with open(file, "w", newline="", encoding="utf-8") as text:
                writer = csv.writer(text)
                writer.writerow(batch.schema.names)
                writer.writerows(zip(*(column.to_pylist() for column in batch.slice(0, count).columns), strict=True))

        return self._sample(count, Dialect(), True, write)

    def discard(self) -> None:
        """Remove the files: nobody will read them."""
        for file in self._files:
            Path(file).unlink(missing_ok=True)

    def _count(self, rows: int) -> int:
        return min(rows, max(SAMPLED_ROWS, self._first_rows - self._rows))

    def _sample(self, count: int, dialect: Dialect, header: bool, write: Callable[[str], object]) -> Sample:
        try:
            if not self._files:
                _remove_old()
            descriptor, file = tempfile.mkstemp(prefix=_PREFIX, suffix=".csv")
            os.close(descriptor)
            self._files.append(file)
            write(file)
        except OSError as error:
            raise VerificationFailed(
                f"verify: rows from {self._rows + 1} on cannot be written to a file in {tempfile.gettempdir()}:"
                f" {error}. Make room there, name another folder by TMPDIR, or leave verify= out"
            ) from error
        return Sample(file, self._rows + 1, count, dialect.to_dict(), header)


def _remove_old() -> None:
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*.csv"):
        with suppress(OSError):  # another process removes it as well, or it is another user's
            if file.stat().st_mtime < time.time() - _OLD_SECONDS and file.stat().st_uid == os.geteuid():
                file.unlink()


# --- the importer


def check_bytes(pipe: str, data: bytes, sample: Sample) -> None:
    """Compare text that passed as it is.

    Raises:
        VerificationFailed: it differs; with the line and both of its values.
    """
    expected = _read(pipe, sample)
    if data[: len(expected)] == expected:
        return
    pairs = enumerate(zip(data, expected, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(data), len(expected)))
    line = expected.count(b"\n", 0, at)
    where = f"row {sample.first_row + line}" if sample.first_row else f"the row at byte {sample.first_byte + at:,}"
    raise _difference(pipe, where, "", _line(data, at), _line(expected, at))


def check_batch(pipe: str, batch: pa.RecordBatch, sample: Sample) -> None:
    """Compare columns.

    Raises:
        VerificationFailed: a value differs; with its row, its column and both values.
    """
    data = _read(pipe, sample)
    dialect = Dialect.from_dict(sample.dialect)
    if sample.header and _same_numbers(data, batch.slice(0, sample.rows)):
        return
    text = data.decode("utf-8", errors="replace")
    names = batch.schema.names
    received = zip(*(column.to_pylist() for column in batch.slice(0, sample.rows).columns), strict=True)
    if dialect.kind == "json":
        for number, (keys, values) in enumerate(zip(_objects(text), received, strict=False)):
            for name, value in zip(names, values, strict=True):
                if not _same_json(value, keys.get(name)):
                    raise _difference(pipe, sample.first_row + number, name, value, keys.get(name))
        return
    records = _records(text, dialect, len(names))
    if sample.header and (header := next(records, [])) != names:
        raise _difference(pipe, 0, "", names, header)
    count = 0
    for count, (fields, values) in enumerate(zip(records, received, strict=False), 1):
        row = sample.first_row + count - 1
        if len(fields) != len(names):
            raise _difference(pipe, row, "", list(values), fields)
        for name, value, field in zip(names, values, fields, strict=True):
            if not _same(value, field, dialect):
                raise _difference(pipe, row, name, value, field)
    if count < sample.rows and not sample.part:
        more = "the file" if batch.num_rows < sample.rows else "the pipe"
        raise VerificationFailed(
            f"pipe {pipe}: row {sample.first_row + count} differs: {more} has no such row (verify). Leave verify= out"
            " to have it as it is, or hand over a file instead, and report this with both ends' versions"
        )


def check_text(pipe: str, text: bytes, dialect: Dialect, schema: pa.Schema, header: bool, sample: Sample) -> None:
    """Compare the text that was written from columns, whose first record is a header if ``header``.

    Numbers may be spelled differently; times and nested values have many spellings, and are compared as columns alone.

    Raises:
        VerificationFailed: as :func:`check_batch`.
    """
    source = Dialect.from_dict(sample.dialect)
    if dialect.kind != "csv" or source.kind != "csv":
        return
    part = text[: max(_SAMPLED_BYTES, sample.rows << 10)]
    written = _records(part.decode(dialect.encoding, errors="replace"), dialect, len(schema))
    expected = _records(_read(pipe, sample).decode("utf-8", errors="replace"), source, len(schema))
    if header and dialect.header:
        next(written, None)
    if sample.header:
        next(expected, None)
    for number, (came, fields) in enumerate(zip(itertools.islice(written, sample.rows), expected, strict=False)):
        for column, value, field in zip(schema, came, fields, strict=False):
            null = value in dialect.nulls and (field in source.nulls or field == "")
            if not null and not _same_text(value, field, column.type):
                raise _difference(pipe, sample.first_row + number, column.name, value, field)


def _same_numbers(data: bytes, batch: pa.RecordBatch) -> bool:
    """Whether columns, all numbers without nulls, are those of the file; where not, another comparison says why.

    Arrow's parser is fast, and had no part in these columns: only the file of columns has a header.
    """
    if any(not (pa.types.is_integer(type_) or pa.types.is_float64(type_)) for type_ in batch.schema.types):
        return False
    try:
        options = pacsv.ConvertOptions(column_types=dict(zip(batch.schema.names, batch.schema.types, strict=True)))
        expected = pacsv.read_csv(pa.BufferReader(data), convert_options=options)
    except pa.ArrowInvalid:
        return False
    return bool(expected.equals(pa.Table.from_batches([batch]).replace_schema_metadata()))


@contextmanager
def comparing(sample: Sample) -> Iterator[None]:
    """The file is removed when it has been compared, whatever the result."""
    try:
        yield
    finally:
        _remove(sample)


def _remove(sample: Sample) -> None:
    with suppress(OSError):  # its exporter, which failed, has removed it
        os.unlink(sample.file)


def _read(pipe: str, sample: Sample) -> bytes:
    try:
        return Path(sample.file).read_bytes()
    except OSError as error:
        raise VerificationFailed(
            f"pipe {pipe}: the rows that went by file cannot be read from {sample.file}: {error}. Both programs have to"
            " see the same folder for temporary files (TMPDIR), or leave verify= out"
        ) from error


def _records(text: str, dialect: Dialect, columns: int) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        doublequote=True,
        quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
    )
    for record in reader:
        if record or columns == 1:
            yield record or [""]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,[":
            at += 1
        if at >= len(text) or text[at] == "]":
            return
        value, at = decoder.raw_decode(text, at)
        yield value


def _same(value: Any, field: str, dialect: Dialect) -> bool:
    if value is None:
        return field in dialect.nulls or field == ""
    if isinstance(value, str):
        return value == field
    try:
        if isinstance(value, bool):
            return field.lower() == str(value).lower()
        if isinstance(value, int):
            return int(field) == value
        if isinstance(value, float):
            number = float(field)
            return number == value or (math.isnan(number) and math.isnan(value))
    except ValueError:
        return False
    return str(value) == field


def _same_text(value: str, field: str, type_: pa.DataType) -> bool:
    if pa.types.is_floating(type_):
        return _same(float(value), field, Dialect()) if _is_number(value) else False
    if pa.types.is_boolean(type_):
        return value.lower() == field.lower()
    if pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return value == field
    return True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _same_json(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and isinstance(expected, (int, float)):
        return value == expected
    if type(value) is type(expected):
        if isinstance(value, dict):
            return all(_same_json(child, expected.get(key)) for key, child in value.items())
        return bool(value == expected)
    return expected is not None and value is not None and not isinstance(value, (int, float)) and str(value) == expected


def _line(data: bytes, at: int) -> str:
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    return data[start : end if end >= 0 else len(data)].decode("utf-8", errors="replace")


def _difference(pipe: str, row: int | str, column: str, came: Any, expected: Any) -> VerificationFailed:
    where = row if isinstance(row, str) else f"row {row}"
    where += f", column {column!r}" if column else ""
    return VerificationFailed(
        f"pipe {pipe}: {where} differs: {_short(came)} by pipe, {_short(expected)} by file (verify). Leave verify= out"
        " to have it as it is, or hand over a file instead, and report this with both ends' versions"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
