"""Cut text into blocks of whole records, and say whether a block's quotes are where a parser expects them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from entrepot_pipes.text.dialect import Dialect

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see


@dataclass(frozen=True)
class TextBlock:
    """A block that stays text, because as columns it would not say the same.

    Args:
        data: the block, in the dialect's encoding; the first one has the header, if there is one.
        reason: why it is not a record batch.
        dialect: of the text.
    """

    data: bytes
    reason: str
    dialect: Dialect


def end_of_records(data: bytes, dialect: Dialect) -> int:
    """Where the last whole record of ``data`` ends; 0 if there is none. ``data`` begins with a record.

    An end of line counts if the number of quotes before it is even. Whether quotes are used otherwise,
    :func:`well_quoted` says.
    """
    mark = b"\r" if dialect.newline == "\r" else b"\n"
    if dialect.quote is None:
        return data.rfind(mark) + 1
    quote = dialect.quote.encode()
    odd = _quotes(data, quote, dialect.escape) % 2 == 1
    end = len(data)
    while (newline := data.rfind(mark, 0, end)) >= 0:
        if _quotes(data[newline:end], quote, dialect.escape) % 2 == 1:
            odd = not odd
        if not odd:
            return newline + 1
        end = newline
    return 0


def first_record(data: bytes, dialect: Dialect) -> bytes:
    """The first record of ``data`` with its end of line, or all of it if it does not end there."""
    quote = dialect.quote.encode() if dialect.quote else b""
    for newline in re.finditer(rb"\r\n|\n|\r", data):
        record = data[: newline.start()]
        if not quote or _quotes(record, quote, dialect.escape) % 2 == 0:
            return data[: newline.end()]
    return data


def _quotes(data: bytes, quote: bytes, escape: str | None) -> int:
    if escape and data.find(escape.encode()) >= 0:
        data = re.sub(re.escape(escape.encode()) + rb"(?s:.)", b"", data)
    return data.count(quote)


def well_quoted(block: bytes, dialect: Dialect) -> bool:
    """Whether each quote of a block of whole records begins or ends a field, or is doubled or escaped within one.

    Parsers disagree about quotes elsewhere, as in ``5" nails``, and counting them no longer finds the ends of records.
    """
    if dialect.quote is None or block.find(dialect.quote.encode()) < 0:
        return True
    quote, delimiter = _escaped(dialect.quote), _escaped(dialect.delimiter)
    inside, plain = f"[^{quote}]|{quote}{quote}", rf"[^{delimiter}{quote}\r\n]"
    if dialect.escape:
        escape = _escaped(dialect.escape)
        inside = rf"[^{quote}{escape}]|{quote}{quote}|{escape}(?s:.)"
        plain = rf"[^{delimiter}{quote}{escape}\r\n]|{escape}(?s:.)"
    ends = rf"{delimiter}|\r\n|\n|\r"
    # Arrow's regular expressions take linear time, and no Python object per field.
    pattern = (
        rf"\A(?:(?:{quote}(?:{inside})*{quote}|(?:{plain})*)(?:{ends}))*(?:{quote}(?:{inside})*{quote}|(?:{plain})*)\z"
    )
    return matches(block, pattern)


def matches(block: bytes, pattern: str) -> bool:
    """Whether the regular expression (in RE2's syntax) occurs in the block, which is not copied."""
    offsets = pa.py_buffer(memoryview(_offsets(len(block))))
    array = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(block)])
    return bool(pc.match_substring_regex(array, pattern)[0].as_py())


def _offsets(length: int) -> bytes:
    return b"\0" * 8 + length.to_bytes(8, "little")


def _escaped(char: str) -> str:
    """A character as a regular expression, in a class or outside."""
    return rf"\x{ord(char):02x}"
