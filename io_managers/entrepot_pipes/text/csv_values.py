"""Which fields of CSV text say the same as a number of their column, so that nothing is lost when they become one.

Arrow also takes ``007``, ``+7``, ``0x10`` and `` 7`` for 7, and rounds what a double cannot hold. Telephone numbers,
postal codes and versions look like that: such a column stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

from entrepot_pipes.text.blocks import matches
from entrepot_pipes.text.dialect import Dialect

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see

# From here on, doubles do not hold every integer.
_EXACT_INTEGERS = 2.0**53

_INTEGER = r"\A(?:0|-?[1-9][0-9]*)\z"
_DOUBLE = r"\A(?:-?(?:0|[1-9][0-9]*|)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?(?i:nan|inf|infinity))\z"
# Too many digits for a double: an integer of sixteen, or eighteen that count with a point among them.
_TOO_LONG = r"\A-?(?:[1-9][0-9]{15,}|[0.]*[1-9](?:\.?[0-9]){17,}(?:[eE].*)?)\z"
_BOOLEAN = r"\A(?:true|false)\z"
_PATTERNS = {pa.int64(): _INTEGER, pa.float64(): _DOUBLE, pa.bool_(): _BOOLEAN}

# What Arrow may make of a column here; everything else is text.
INFERRED = frozenset({pa.int64(), pa.float64(), pa.bool_(), pa.date32()})


def inexact_columns(
    block: bytes, batch: pa.RecordBatch, dialect: Dialect, as_text: Callable[[list[str]], pa.RecordBatch]
) -> dict[str, str]:
    """The columns of ``batch`` that do not say the same as their text in ``block``, each with a field that differs.

    ``as_text`` parses some columns of the block as text. It is only called if the block contains something suspicious.
    """
    numbers = [field.name for field in batch.schema if field.type in _PATTERNS]
    if not numbers or not _suspicious(block, batch, dialect):
        return {}
    texts = as_text(numbers)
    inexact: dict[str, str] = {}
    for name in numbers:
        column, type_ = texts.column(texts.schema.get_field_index(name)), batch.schema.field(name).type
        wrong = pc.invert(pc.match_substring_regex(column, _PATTERNS[type_]))
        if type_ == pa.float64():
            wrong = pc.or_(wrong, pc.match_substring_regex(column, _TOO_LONG))
        example = pc.index(wrong, True).as_py()
        if example >= 0:
            inexact[name] = column[example].as_py()
    return inexact


def _suspicious(block: bytes, batch: pa.RecordBatch, dialect: Dialect) -> bool:
    bounds = rf"\x{ord(dialect.delimiter):02x}\r\n" + (f"\\x{ord(dialect.quote):02x}" if dialect.quote else "")
    blanks = " " if dialect.delimiter == "\t" else r"\t" if dialect.delimiter == " " else r" \t"
    spellings = rf"(?:\A|[{bounds}])(?:[{blanks}+]|-?0[0-9xXbB]|-0(?:\z|[{bounds}]))|[{blanks}](?:\z|[{bounds}])"
    doubles = [column for column in batch.columns if column.type == pa.float64()]
    if doubles:
        # Bound to the beginning of a field, so that a matcher is in one place of the pattern at a time.
        spellings += rf"|(?:\A|[{bounds}])-?(?:[1-9][0-9.]{{18}}|0?\.0*[1-9][0-9]{{17}})"
    return matches(block, spellings) or any(_holds_large(column) for column in doubles)


def _holds_large(column: pa.Array) -> bool:
    ends = pc.min_max(column).as_py()
    return ends["max"] is not None and max(-ends["min"], ends["max"]) >= _EXACT_INTEGERS
