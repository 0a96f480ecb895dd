"""The values of Arrow arrays as text: as fields of CSV, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute
from entrepot.errors import InvalidArgument

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see


def as_texts(column: pa.Array) -> tuple[pa.Array, bool]:
    """The values as ``large_string``, and whether they are texts of any kind, which may need quotes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    type_ = column.type
    if pa.types.is_floating(type_):
        return _double_texts(column), False
    if _is_nested(type_):
        texts = [None if value is None else _dumps(value) for value in column.to_pylist()]
        return pa.array(texts, pa.large_string()), True
    try:
        texts = pc.cast(column, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgument(f"a column of {type_} has no text: {error}") from error
    plain = pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_)
    return texts, not (plain or pa.types.is_date(type_))


def as_json(column: pa.Array) -> pa.Array:
    """The values as JSON, in ``large_string``, without nulls."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    type_ = column.type
    if _is_nested(type_):
        return pa.array([_dumps(value) for value in column.to_pylist()], pa.large_string())
    if pa.types.is_floating(type_):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, type_))
    texts, textual = as_texts(column)
    if textual or pa.types.is_date(type_):
        texts = _json_strings(texts)
    return pc.fill_null(texts, "null")


def _is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) or isinstance(type_, pa.BaseExtensionType)


def _double_texts(column: pa.Array) -> pa.Array:
    """Doubles look like doubles also if they are whole numbers, so that they are not read as integers."""
    if pa.types.is_float16(column.type):
        column = pc.cast(column, pa.float32())
    texts = pc.cast(column, pa.large_string())
    whole = pc.equal(pc.trunc(column), column)
    if pc.any(whole).as_py():
        whole = pc.and_(whole, pc.match_substring_regex(texts, r"\A-?[0-9]+\z"))
        pointed = pc.binary_join_element_wise(
            texts, pa.scalar(".0", pa.large_string()), pa.scalar("", pa.large_string())
        )
        return pc.if_else(whole, pointed, texts)
    return texts


def _json_strings(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        return pa.array([None if value is None else _dumps(value) for value in texts.to_pylist()], pa.large_string())
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quote, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(quote, escaped, quote, nothing)


def _dumps(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    return [_finite(child) for child in value] if isinstance(value, list) else value
