"""Tables that a program gets the same from columns as it would by reading their text.

Programs guess types when they read text: ``007`` becomes a number, ``NA`` a null, ``2024-05-01`` a date, each in its
own way. Where all of them would guess the types that the columns have anyway, the text can be left out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see

# A column of text is taken for text by every program if no field of it could be something else.
_SOMETHING_ELSE = (
    r"\A[-+0-9.,:/ TtZzeExXpPaAmM_%$()]*\z"  # numbers, dates, times, nothing
    r"|\A[ \t]|[ \t]\z|[\x00\r\n]"  # what some of them strip or read differently
    r"|(?i)\A#|\A[-+]?(inf|infinity|nan|1\.#ind|1\.#qnan)\z"
    r"|(?i)\A<?(true|false|t|f|y|n|yes|no|on|off|na|n/a|null|nil|none|missing|#n/a n/a|#na|\\n)>?\z"
)
_NAMES = r"\A[A-Za-z_][A-Za-z0-9_ ]*\z"
_TYPE_WORDS = frozenset({"true", "false", "nan", "inf", "infinity", "null", "none", "na"})


def exact_table(table: pa.Table) -> pa.Table | None:
    """The table with the types that any program would read from its text; ``None`` if they might differ."""
    if table.num_rows == 0 or table.num_columns == 0:
        return None
    names = table.schema.names
    if len(set(names)) != len(names) or any(name.lower() in _TYPE_WORDS for name in names):
        return None
    if not pc.all(pc.match_substring_regex(pa.array(names, pa.string()), _NAMES)).as_py():
        return None
    columns = [_exact(column) for column in table.columns]
    if any(column is None for column in columns):
        return None
    # Where all columns are text, the names might be taken for values.
    if all(pa.types.is_string(column.type) for column in columns if column is not None):
        return None
    return pa.table(dict(zip(names, columns, strict=True)))


def _exact(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    type_ = column.type
    if column.null_count == len(column):
        return None
    if pa.types.is_integer(type_):
        try:
            return pc.cast(column, pa.int64())
        except pa.ArrowInvalid:
            return None
    if type_ == pa.float64():
        return column if pc.all(pc.is_finite(column)).as_py() else None
    if pa.types.is_boolean(type_):
        return column if column.null_count == 0 else None
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        if pc.any(pc.match_substring_regex(column, _SOMETHING_ELSE)).as_py():
            return None
        return pc.cast(column, pa.string())
    return None


def plain_types(schema: pa.Schema, *, booleans: bool = False) -> bool:
    """Whether text written from such columns reads as text that any program writes from them.

    Booleans and times are spelled in different ways: a program that spells them as Arrow does says so.
    """
    return all(
        pa.types.is_integer(type_)
        or type_ == pa.float64()
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or (booleans and pa.types.is_boolean(type_))
        for type_ in schema.types
    )
