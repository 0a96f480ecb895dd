"""NumPy dtypes as plain data, and back, exactly.

A simple dtype is its array-protocol string (``"<f8"``, ``"<M8[25s]"``). A dtype whose string is parsed as another C
type of the same layout (``longlong`` and ``int64``) is ``{"char": ..., "order": ...}``. A sub-array is ``{"base": ...,
"shape": ...}``; a structured dtype lists its fields with their offsets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from entrepot.errors import CorruptData, UnsupportedType

_MAX_NESTING = 32


def describe_dtype(dtype: np.dtype[Any]) -> Any:
    """The dtype as plain data.

    Raises:
        UnsupportedType: it holds Python objects or variable-width text, has metadata, or belongs to another package.
    """
    described = _NATIVE.get(dtype.num) if dtype.isbuiltin == 1 and dtype.isnative and dtype.metadata is None else None
    if described is not None:
        return described
    described = _describe(dtype)
    if not isinstance(described, str) and not _same_dtype(restore_dtype(described), dtype):
        raise _unsupported(dtype)
    return described


def restore_dtype(described: Any) -> np.dtype[Any]:
    """Restore the dtype that :func:`describe_dtype` described.

    Raises:
        CorruptData: it does not describe a dtype, or one that holds Python objects.
    """
    plain = _RESTORED.get(described) if type(described) is str else None
    if plain is not None:
        return plain
    try:
        dtype = _restore(described, 0)
    except (TypeError, ValueError, KeyError, SyntaxError, OverflowError) as error:
        raise CorruptData(f"{described!r} does not describe a NumPy dtype: {error}") from error
    # Bytes interpreted as object references would be dereferenced: this check keeps a damaged object from crashing us.
    if dtype.hasobject or dtype.kind not in "?biufcmMSUV":
        raise CorruptData(f"{described!r} describes a dtype of kind {dtype.kind!r}, which is never stored as bytes")
    return dtype


def _unsupported(dtype: np.dtype[Any]) -> UnsupportedType:
    return UnsupportedType(
        f"a NumPy array of dtype {dtype} cannot be stored as bytes: "
        "convert it to a fixed-width dtype or to an Arrow array, or allow pickling"
    )


def _describe(dtype: np.dtype[Any]) -> Any:
    # Kind "b" is bool; dtypes of other packages (bfloat16) and variable-width text have kinds "V" and "T".
    if dtype.hasobject or dtype.metadata is not None or dtype.kind not in "biufcmMSUV":
        raise _unsupported(dtype)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _describe(base), "shape": list(shape)}
    if dtype.names is not None and dtype.fields is not None:
        by_name: Any = dtype.fields
        entries = [by_name[name] for name in dtype.names]
        titles = [entry[2] if len(entry) > 2 else None for entry in entries]
        if not all(title is None or type(title) is str for title in titles):
            raise _unsupported(dtype)
        return {
            "names": list(dtype.names),
            "formats": [_describe(entry[0]) for entry in entries],
            "offsets": [entry[1] for entry in entries],
            "titles": titles,
            "itemsize": dtype.itemsize,
            "aligned": dtype.isalignedstruct,
            "record": dtype.type is np.record,
        }
    text = dtype.str
    try:
        plain = np.dtype(text)
    except TypeError:
        raise _unsupported(dtype) from None
    if plain == dtype and plain.char == dtype.char and plain.type is dtype.type:
        return text
    if dtype.kind in "iufc":
        described = {"char": dtype.char, "order": text[0]}
        if _same_dtype(_restore(described, 0), dtype):
            return described
    raise _unsupported(dtype)


def _restore(described: Any, depth: int) -> np.dtype[Any]:
    if isinstance(described, str):
        if described[:1] not in ("<", ">", "|") or described[1:2] == "a":  # NumPy would guess at other spellings
            raise ValueError("not an array-protocol string")
        return np.dtype(described)
    if not isinstance(described, dict) or depth > _MAX_NESTING:
        raise ValueError("expected text or a mapping")
    if "char" in described:
        return np.dtype(described["char"]).newbyteorder(described["order"])
    if "base" in described:
        return np.dtype((_restore(described["base"], depth + 1), tuple(described["shape"])))
    titles = described["titles"]
    spec: dict[str, Any] = {
        "names": described["names"],
        "formats": [_restore(item, depth + 1) for item in described["formats"]],
        "offsets": described["offsets"],
        "itemsize": described["itemsize"],
    }
    if any(title is not None for title in titles):
        spec["titles"] = titles
    dtype = np.dtype(spec, align=bool(described["aligned"]))  # type: ignore[call-overload]
    return np.dtype((np.record, dtype)) if described["record"] else dtype


def _same_dtype(dtype: np.dtype[Any], other: np.dtype[Any]) -> bool:
    if dtype != other or dtype.type is not other.type or dtype.char != other.char:
        return False
    if dtype.isalignedstruct != other.isalignedstruct or dtype.names != other.names:
        return False
    if dtype.subdtype is not None and other.subdtype is not None:
        return _same_dtype(dtype.subdtype[0], other.subdtype[0])
    fields: Any = dtype.fields
    others: Any = other.fields
    return fields is None or all(_same_dtype(fields[name][0], others[name][0]) for name in dtype.names or ())


# Numbers of the machine's own byte order, which most arrays have: described by their type numbers, and restored.
_NATIVE: dict[int, Any] = {np.dtype(char).num: _describe(np.dtype(char)) for char in "?bBhHiIlLqQefdgFDG"}
_RESTORED: dict[str, np.dtype[Any]] = {
    described: _restore(described, 0) for described in _NATIVE.values() if isinstance(described, str)
}
