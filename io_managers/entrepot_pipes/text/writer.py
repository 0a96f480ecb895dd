"""Record batches as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
from entrepot.errors import InvalidArgument

from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.values import as_json, as_texts

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see

# Written at once, so that no array of text becomes large.
_SLICE_BYTES = 16 << 20
_SLICE_ROWS = 1 << 16


class TextWriter:
    """Writes record batches in a dialect. Doubles are written with as many digits as it takes to read the same again.

    In CSV, lists and structs are written as JSON. In JSON, doubles that are no numbers are written as ``null``.

    Used by one thread at a time.
    """

    def __init__(self, dialect: Dialect | None = None) -> None:
        self.dialect = dialect or Dialect()
        self._names: list[str] | None = None
        self._records = 0

    def write(self, batch: pa.RecordBatch) -> bytes:
        """The text of a batch; before the first one, the header.

        Raises:
            InvalidArgument: the batch has other columns than the first, or a value that the dialect cannot express.
        """
        beginning = b""
        if self._names is None:
            self._names = list(batch.schema.names)
            beginning = self._begin(self._names)
        elif self.dialect.kind == "csv" and self._names != batch.schema.names:
            raise InvalidArgument(
                f"a batch has the columns {batch.schema.names}, and those before it {self._names}: CSV has one header"
            )
        return beginning + b"".join(map(self._write_slice, _slices(batch)))

    def finish(self, schema: pa.Schema | None = None) -> bytes:
        """What belongs at the end of the text; if nothing was written, also the header of ``schema``."""
        beginning = self._begin(list(schema.names)) if self._names is None and schema is not None else b""
        if self.dialect.kind == "json" and self.dialect.layout == "array":
            opened = b"[" if self._names is None and not beginning else b""
            return beginning + opened + self._encode(f"{self.dialect.newline}]{self.dialect.newline}")
        return beginning

    def _begin(self, names: list[str]) -> bytes:
        self._names = names
        if self.dialect.kind == "json":
            if len(set(names)) != len(names):
                raise InvalidArgument(f"JSON objects have no two keys of one name, unlike these columns: {names}")
            return self._encode("[") if self.dialect.layout == "array" else b""
        if not self.dialect.header:
            return b""
        fields = self._quoted(pa.array(names, pa.large_string())).to_pylist()
        return self._encode(self.dialect.delimiter.join(fields) + self.dialect.newline)

    def _write_slice(self, batch: pa.RecordBatch) -> bytes:
        if batch.num_rows == 0:
            return b""
        if self.dialect.kind == "json":
            rows = self._json_rows(batch)
        elif batch.num_columns == 0:
            raise InvalidArgument("a table without columns has no text")
        else:
            fields = [self._csv_fields(column) for column in batch.columns]
            rows = pc.binary_join_element_wise(*fields, _text(self.dialect.delimiter))
        if self.dialect.kind == "csv" or self.dialect.layout == "lines":
            rows = pc.binary_join_element_wise(rows, _text(""), _text(self.dialect.newline))
        self._records += batch.num_rows
        text = _content(rows)
        return text if self._is_utf8() else self._encode(text.decode())

    # --- CSV

    def _csv_fields(self, column: pa.Array) -> pa.Array:
        texts, textual = as_texts(column)
        null = self.dialect.nulls[0]
        if (textual or self.dialect.quoting == "all" or null) and self.dialect.quoting != "none":
            texts = self._quoted(texts, everything=self.dialect.quoting == "all")
        elif textual:
            self._refuse_special(texts)
        return pc.fill_null(texts, null) if texts.null_count else texts

    def _quoted(self, texts: pa.Array, everything: bool = False) -> pa.Array:
        """The fields, with quotes around those that would be read as something else, or around all but nulls."""
        quote, escape = self.dialect.quote, self.dialect.escape
        if quote is None:
            self._refuse_special(texts)
            return texts
        needed = self._special(texts)
        if not everything and not pc.any(needed).as_py():
            return texts
        inside = texts
        if escape is not None:
            inside = pc.replace_substring(inside, escape, escape * 2)
        inside = pc.replace_substring(inside, quote, (escape or quote) + quote)
        quoted = pc.binary_join_element_wise(_text(quote), inside, _text(quote), _text(""))
        return quoted if everything else pc.if_else(needed, quoted, texts)

    def _special(self, texts: pa.Array) -> pa.Array:
        """Which texts mean something else if they are not quoted."""
        marks = [self.dialect.delimiter, self.dialect.quote, self.dialect.escape, "\r", "\n"]
        pattern = "[" + "".join(rf"\x{ord(mark):02x}" for mark in marks if mark) + r"]|\A[ \t]|[ \t]\z"
        pattern += r"|\A\x{feff}"
        special = pc.match_substring_regex(texts, pattern)
        return pc.or_(special, pc.is_in(texts, pa.array(self.dialect.nulls, texts.type)))

    def _refuse_special(self, texts: pa.Array) -> None:
        at = pc.index(self._special(texts), True).as_py()
        if at >= 0:
            raise InvalidArgument(
                f"{texts[at].as_py()!r} needs quotes, and this dialect has none: give it a quote character, or a"
                " delimiter and nulls that do not occur in values"
            )

    # --- JSON

    def _json_rows(self, batch: pa.RecordBatch) -> pa.Array:
        pieces: list[pa.Array | pa.Scalar] = []
        for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
            pieces.append(_text(("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":"))
            pieces.append(as_json(column))
        closing = "}" if pieces else "{}"
        if not pieces:
            rows = pa.array([closing] * batch.num_rows, pa.large_string())
        else:
            rows = pc.binary_join_element_wise(*pieces, _text(closing), _text(""))
        if self.dialect.layout == "lines":
            return rows
        # A comma goes before an object, because nobody knows which one is the last.
        commas = [f",{self.dialect.newline}"] * batch.num_rows
        if not self._records:
            commas[0] = self.dialect.newline
        return pc.binary_join_element_wise(pa.array(commas, pa.large_string()), rows, _text(""))

    # --- encoding

    def _is_utf8(self) -> bool:
        return self.dialect.encoding.lower().replace("_", "-") in ("utf-8", "utf8")

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode(self.dialect.encoding)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{error.object[error.start]!r} does not exist in {self.dialect.encoding}") from error


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    per_row = max(1, batch.nbytes // max(1, batch.num_rows))
    rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES // per_row))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _content(lines: pa.Array) -> bytes:
    """All elements, one after the other: the array's own buffer."""
    if lines.offset or lines.null_count:
        raise AssertionError("joined lines have neither an offset nor nulls")
    data = lines.buffers()[2]
    return data.to_pybytes() if data is not None else b""
