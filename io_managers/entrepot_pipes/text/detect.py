"""Find the dialect of a text by looking at its first block."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from entrepot_pipes.text.dialect import Dialect, Kind

# A sample of this size decides; more would take longer and seldom say something else.
_SAMPLE_BYTES = 256 * 1024
_SAMPLE_RECORDS = 200

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Characters that separate the fields of most texts. Others are parts of numbers, times and names as well, and are only
# considered if none of these appears.
_USUAL = frozenset(",\t;|\x01\x1f\x1e")
_PARTS_OF_VALUES = frozenset("\"'._-+\\\r\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_TYPED = re.compile(rf"{_NUMBER.pattern}|true|false|\d{{4}}-\d\d-\d\d([ T]\d\d:\d\d.*)?", re.IGNORECASE)


def strip_bom(data: bytes) -> tuple[bytes, str | None]:
    """``data`` without its byte order mark, and the encoding that the mark stands for (``None``: there is none)."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :], encoding
    return data, None


def detect_kind(text: str) -> Kind:
    """``"json"`` if the text begins like an object or like an array of objects."""
    return "json" if re.match(r'\s*(\[\s*)?\{\s*["}]', text) or re.fullmatch(r"\s*\[\s*\]\s*", text) else "csv"


def detect(sample: bytes, kind: Kind | None = None, hints: Mapping[str, Any] | None = None) -> Dialect:
    """The dialect of the text that begins with ``sample``.

    The delimiter is the most frequent single character outside quotes that is not alphanumeric, and of several the one
    seen first; characters that separate fields in most texts come before those that numbers and times contain, and of
    these the ones that every record has equally often. The first record is a header if its fields could not be values
    of their columns; where all columns are text, if its fields are different names.

    ``hints`` are fields of the dialect that are known of the program; an escape is only used unless the text doubles
    quotes, because programs let their users choose between the two.
    """
    fields = dict(hints or {})
    data, encoding = strip_bom(sample[:_SAMPLE_BYTES])
    text = data.decode(encoding or "utf-8", errors="replace")
    kind = kind or detect_kind(text)
    newline = _newline(text)
    if kind == "json":
        layout = "array" if text.lstrip().startswith("[") else "lines"
        return Dialect(kind="json", newline=newline, encoding=encoding or "utf-8", layout=layout)  # type: ignore[arg-type,unused-ignore]
    whole = len(sample) <= _SAMPLE_BYTES and text.endswith(("\n", "\r"))
    quote = _quote(text)
    usual_escape = fields.pop("escape", None)
    if usual_escape is not None:
        escape = None if _doubles(text, quote or '"', usual_escape) else usual_escape
    else:
        escape = "\\" if quote is not None and _escapes(text, quote) else None
    delimiter = _delimiter(_records_outside_quotes(text, quote or '"', escape, whole))
    nulls = ("\\N",) if _has_field(text, "\\N", delimiter) else ("",)
    dialect = Dialect(
        delimiter=delimiter,
        quote=quote or '"',
        escape=escape,
        newline=newline,
        nulls=nulls,
        encoding=encoding or "utf-8",
    )
    if "header" not in fields:
        fields["header"] = _has_header(_sample_records(text, dialect), nulls)
    return replace(dialect, **fields)


def _newline(text: str) -> str:
    matched = re.search(r"\r\n|\n|\r(?!\Z)", text)
    return matched.group() if matched else "\n"


def _quote(text: str) -> str | None:
    """The character that begins and ends fields: the one that follows an end of line or a delimiter."""
    for quote in "\"'":
        begins = re.search(rf"(?:^|[\r\n]|[^\w\s{quote}]|\t){quote}", text)
        ends = re.search(rf"{quote}(?:$|[\r\n]|[^\w\s{quote}]|\t)", text)
        if begins and ends and (quote == '"' or _every_quote_bounds_a_field(text, quote)):
            return quote
    return None


def _every_quote_bounds_a_field(text: str, quote: str) -> bool:
    """An apostrophe also occurs within words; it only quotes if it never does."""
    return text.count(quote) > 1 and not re.search(rf"\w{quote}\w", text)


def _escapes(text: str, quote: str) -> bool:
    """Whether quotes within quotes are escaped by a backslash, instead of doubled."""
    return f"\\{quote}" in text and quote * 2 not in re.sub(r"(?s)\\.", "", text)


def _doubles(text: str, quote: str, escape: str) -> bool:
    """Whether quotes within quotes are doubled; an empty field within quotes is none of them."""
    unescaped = re.sub(rf"(?s){re.escape(escape)}.", "x", text)
    return quote * 2 in re.sub(
        rf"(?<![\w\s{quote}]){quote}{quote}(?![\w {quote}])|^{quote}{quote}", "", unescaped, flags=re.M
    )


def _records_outside_quotes(text: str, quote: str, escape: str | None, whole: bool) -> list[str]:
    if escape:
        text = re.sub(rf"(?s){re.escape(escape)}.", "x", text)
    segments = text.split(quote)
    records = re.split(r"\r\n|\n|\r", "q".join(segments[::2]))
    records = records if whole or len(records) == 1 else records[:-1]
    return [record for record in records if record][:_SAMPLE_RECORDS]


def _delimiter(records: list[str]) -> str:
    counts: Counter[str] = Counter()
    for record in records:  # a Counter keeps the order in which characters were first seen
        counts.update(char for char in record if char.isascii() and not char.isalnum() and char not in _PARTS_OF_VALUES)
    candidates = [char for char in counts if char != "\0"]
    usual = [char for char in candidates if char in _USUAL]
    candidates = usual or candidates
    regular = [char for char in candidates if len({record.count(char) for record in records}) == 1]
    return max(regular or candidates, key=lambda char: counts[char], default=",")


def _has_field(text: str, field: str, delimiter: str) -> bool:
    bound = rf"[{re.escape(delimiter)}\r\n]"
    return re.search(rf"(?:^|{bound}){re.escape(field)}(?:$|{bound})", text) is not None


def _sample_records(text: str, dialect: Dialect) -> list[list[str]]:
    lines = text.splitlines(keepends=True)[:_SAMPLE_RECORDS]
    try:
        reader = csv.reader(
            lines, delimiter=dialect.delimiter, quotechar=dialect.quote, escapechar=dialect.escape, strict=False
        )
        return [record for record in reader if record]
    except csv.Error:
        return []


def _has_header(records: list[list[str]], nulls: tuple[str, ...]) -> bool:
    if not records:
        return True
    first, rest = records[0], records[1:]
    if any(_TYPED.fullmatch(field.strip()) for field in first):
        return False
    for column, name in enumerate(first):
        values = [record[column] for record in rest if column < len(record) and record[column] not in ("", *nulls)]
        if values and name and all(_TYPED.fullmatch(value.strip()) for value in values):
            return True
    names = [name for name in first if name]
    # pandas writes an index without a name: only the first field may be empty.
    return len(set(names)) == len(names) >= max(len(first) - 1, 1) and not set(names) & {"\\N"}
