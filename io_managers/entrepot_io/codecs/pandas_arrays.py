"""pandas' own arrays, and NumPy arrays of objects as pandas uses them for text.

An array has one child for each plain array that it is made of: codes and categories, values and mask, ordinals. All of
them are restored as views of the stored bytes. pandas has no public accessor for the values and mask of nullable
arrays; ``_data`` and ``_mask`` have been stable since pandas 1.0, and should they disappear, the array is pickled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from entrepot import object_text
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.numpy_arrays import decode_ndarray
from entrepot_io.codecs.pandas_labels import decode_zone, encode_zone, pyarrow_installed
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields, translate_decode_errors

# From this many elements on, text is stored as an Arrow array; below, a list is smaller and faster.
_ARROW_TEXT_LENGTH = 64
_MISSING: dict[str, Any] = {"": None, "none": None, "nan": np.nan, "na": pd.NA}
_MASKED = {
    "IntegerArray": pd.arrays.IntegerArray,
    "FloatingArray": pd.arrays.FloatingArray,
    "BooleanArray": pd.arrays.BooleanArray,
}


def encode_values(values: Any, encoder: Encoder) -> Node:
    """Encode the values of a Series or Index: a NumPy array of any dtype, or an extension array."""
    if isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        return _encode_objects(values, encoder)
    return encoder.encode(values)


def values_of(series_or_index: Any) -> Any:
    """The values without a copy: a NumPy array if the dtype is NumPy's, else the extension array."""
    if isinstance(series_or_index.dtype, np.dtype):
        return series_or_index.to_numpy(copy=False)
    return series_or_index.array


def decode_column(node: Node, decoder: Decoder, length: int) -> Any:
    """Decode the ``length`` values of a column, with text of dtype ``object`` as the reader wants it."""
    plain = decoder.object_strings == "object" or node.codec != ObjectArrayCodec.name
    if plain or node.version > ObjectArrayCodec.version:
        return decode_values(node, decoder, length)
    with translate_decode_errors(node):
        return _checked_values(node, ObjectArrayCodec().rebuild(node, decoder, as_text=True), length)


def decode_values(node: Node, decoder: Decoder, length: int | None = None) -> Any:
    """Decode what :func:`encode_values` encoded: one dimension, and ``length`` elements if given."""
    return _checked_values(node, decoder.decode(node), length)


def _checked_values(node: Node, values: Any, length: int | None) -> Any:
    if not isinstance(values, (np.ndarray, pd.api.extensions.ExtensionArray)) or values.ndim != 1:
        raise damaged(node, f"expected a one-dimensional array, found {type(values).__name__}")
    if length is not None and len(values) != length:
        raise damaged(node, f"expected {length} elements, found {len(values)}")
    return values


def _encode_objects(values: np.ndarray[Any, Any], encoder: Encoder) -> Node:
    size = object_text.measure(values, pd.NA)
    missing = "" if size is None else size.missing
    content: Any = None
    if size is not None and size.nbytes is not None and len(values) >= _ARROW_TEXT_LENGTH and pyarrow_installed():
        content = _text_of_objects(values, size.nulls, size.nbytes)
    elif missing == "na":
        content = [item if type(item) is str else None for item in values]
    else:
        content, missing = values.tolist(), ""
    codec = ObjectArrayCodec
    return Node(codec.name, codec.version, [missing, len(values)], children=[encoder.encode(content)])


def _text_of_objects(values: np.ndarray[Any, Any], nulls: int, nbytes: int) -> Any:
    """Return Arrow's array of strings and nulls.

    In buffers of NumPy's, which are of exactly the size that is needed, and may be made in the store.
    """
    import pyarrow as pa

    rows = len(values)
    offsets, text = np.empty(rows + 1, np.int64), np.empty(nbytes, np.uint8)
    validity = np.empty((rows + 7) // 8, np.uint8) if nulls else None
    object_text.write(values, offsets, text, validity)
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text), bits, nulls)


class ObjectArrayCodec(CheckedCodec):
    """A one-dimensional NumPy array of objects. params: [representation of missing values, empty for "as they are";
    length].

    The child is an Arrow array of text, or a list. Text is restored as new ``str`` objects (equal ones shared), other
    elements as their own codecs restore them. Alternatively, an array with at least one text, and nothing but text and
    missing values of one kind, is restored as pandas' text over Arrow: over the stored bytes if these are Arrow's.
    """

    name = "pandas.objects"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return _encode_objects(value, encoder)

    def rebuild(self, node: Node, decoder: Decoder, *, as_text: bool = False) -> Any:
        missing, length = fields(node, 2)
        content = decoder.decode(child(node, 0))
        if missing not in _MISSING:
            raise damaged(node, f"unknown representation of missing values {missing!r}")
        if len(content) != length:
            raise damaged(node, f"expected {length} elements, found {len(content)}")
        if isinstance(content, list):
            if missing:
                content = [_MISSING[missing] if item is None else item for item in content]
            values: Any = np.fromiter(content, dtype=object, count=length)
            return _as_arrow_text(values) if as_text else values
        if as_text and content.null_count < length:
            if str(content.type) != "large_string":
                raise damaged(node, f"its text is of type {content.type}")
            return _text_dtype("pyarrow", missing != "na").__from_arrow__(content)
        values = np.array(content.to_numpy(zero_copy_only=False), dtype=object, copy=None)
        if missing and _MISSING[missing] is not None and content.null_count:
            values[content.is_null().to_numpy(zero_copy_only=False)] = _MISSING[missing]
        return values


def _as_arrow_text(values: np.ndarray[Any, Any]) -> Any:
    """Elements that were stored as a list, as text over Arrow if they are text; unchanged otherwise."""
    size = object_text.measure(values, pd.NA)
    if size is None or size.nbytes is None or size.nulls == len(values) or not pyarrow_installed():
        return values
    return pd.array(values, dtype=_text_dtype("pyarrow", size.missing != "na"))


def _text_dtype(storage: str, missing_is_nan: bool) -> Any:
    """The dtype of text; over Python strings where PyArrow is not installed, over Arrow where pandas has no other."""
    kind: Any = pd.StringDtype
    if storage != "python":
        storage = "pyarrow" if pyarrow_installed() else "python"  # "pyarrow_numpy": what pandas 2.2 wrote for str
    if not missing_is_nan:
        return kind(storage)
    try:
        return kind(storage, na_value=np.nan)
    except TypeError as error:  # pandas 2.2 has another name for this dtype, and supports it only over Arrow
        if not pyarrow_installed():
            raise UnsupportedType(
                f"the dtype 'str' without PyArrow requires pandas 2.3 or newer, but pandas {pd.__version__} is "
                "installed here: install pyarrow, or a newer pandas"
            ) from error
        return kind("pyarrow_numpy")


class ArrayCodec(CheckedCodec):
    """pandas' extension arrays. params: [kind, details]; the component arrays are children."""

    name = "pandas.array"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        kind, details, children = self._parts(value, encoder)
        return Node(self.name, self.version, [kind, details], children=children)

    def _parts(self, value: Any, encoder: Encoder) -> tuple[str, Any, list[Node]]:
        dtype = value.dtype
        encode = encoder.encode
        if isinstance(dtype, pd.ArrowDtype):
            return "arrow", None, [encode(_to_arrow(value))]
        if isinstance(dtype, pd.StringDtype):
            details = [dtype.storage, dtype.na_value is not pd.NA]
            if dtype.storage == "python" or len(value) < _ARROW_TEXT_LENGTH:  # readable without PyArrow
                return "text", details, [encode_values(np.asarray(value, dtype=object), encoder)]
            return "text", details, [encode(_to_arrow(value))]
        if isinstance(dtype, pd.CategoricalDtype):
            return "categorical", bool(dtype.ordered), [encode(value.codes), encode(dtype.categories)]
        if isinstance(dtype, pd.DatetimeTZDtype):
            return "zoned", dtype.unit, [encode(value.asi8), encode_zone(dtype.tz, encoder)]
        if isinstance(dtype, pd.PeriodDtype):
            if pd.api.types.pandas_dtype(dtype.name) != dtype:
                raise UnsupportedType(f"the frequency of {dtype} has no name to store: use a standard frequency")
            return "period", dtype.name, [encode(value.asi8)]
        if isinstance(dtype, pd.IntervalDtype):
            return "interval", value.closed, [encode(value.left), encode(value.right)]
        if isinstance(dtype, np.dtype):
            return "numpy", type(value).__name__, [encode_values(np.asarray(value), encoder)]
        name = type(value).__name__
        parts = getattr(value, "_data", None), getattr(value, "_mask", None)
        if name not in _MASKED or not all(isinstance(part, np.ndarray) for part in parts):
            raise UnsupportedType(f"pandas arrays of dtype {dtype} are not supported: allow pickling, or convert them")
        return "masked", name, [encode(parts[0]), encode(parts[1])]

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        kind, details = fields(node, 2)
        parts = [decoder.decode(item) for item in node.children[:2]] if kind != "zoned" else []
        if kind == "arrow":
            return pd.arrays.ArrowExtensionArray(_require_arrow(node, parts[0]))
        if kind == "text":
            return self._text(node, details, parts[0])
        if kind == "categorical":
            return _categorical(node, parts[0], parts[1], details)
        if kind == "zoned":
            instants = _require_int64(node, decoder.decode(child(node, 0)))
            dtype = pd.DatetimeTZDtype(details, decode_zone(child(node, 1), decoder))
            return pd.array(instants, dtype=dtype, copy=False)
        if kind == "period":
            period: Any = pd.api.types.pandas_dtype(details)
            if not isinstance(period, pd.PeriodDtype):
                raise damaged(node, f"{details!r} is not a period")
            return pd.arrays.PeriodArray(_require_int64(node, parts[0]), dtype=period)
        if kind == "interval":
            return pd.arrays.IntervalArray.from_arrays(parts[0], parts[1], closed=details)
        if kind == "masked":
            return _MASKED[details](parts[0], parts[1], copy=False)
        if kind == "numpy" and details == "NumpyExtensionArray":
            return pd.arrays.NumpyExtensionArray(parts[0])
        if kind == "numpy":
            return pd.array(parts[0], dtype=parts[0].dtype, copy=False)
        raise damaged(node, f"unknown kind of array {kind!r}")

    def _text(self, node: Node, details: Any, content: Any) -> Any:
        storage, missing_is_nan = details
        dtype = _text_dtype(storage, missing_is_nan)
        if not isinstance(content, np.ndarray):
            return dtype.__from_arrow__(_require_arrow(node, content))
        values: list[Any] = content.tolist() if storage == "pyarrow" and content.ndim == 1 else [None]
        if all(type(value) is str for value in values):
            return dtype.__from_arrow__(_arrow_text(values))
        return pd.array(content, dtype=dtype, copy=False)


def _arrow_text(values: list[str]) -> Any:
    """Return Arrow's array of strings.

    Not by ``pyarrow.array``, whose first call in a process takes 5 to 20 ms to look at pandas: a frame of views would
    need it for nothing but the names of its columns.
    """
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    text = pa.py_buffer(b"".join(encoded))
    return pa.chunked_array([pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(offsets), text)])


def _to_arrow(value: Any) -> Any:
    import pyarrow as pa

    arrow = value.__arrow_array__()
    return arrow if isinstance(arrow, pa.ChunkedArray) else pa.chunked_array([arrow], type=arrow.type)


def _require_arrow(node: Node, value: Any) -> Any:
    import pyarrow as pa

    if not isinstance(value, pa.ChunkedArray):
        raise damaged(node, f"expected an Arrow array, found {type(value).__name__}")
    return value


def _require_int64(node: Node, values: Any) -> Any:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.ndim != 1:
        raise damaged(node, "its ordinals are not 64-bit integers")
    return values


def _categorical(node: Node, codes: Any, categories: Any, ordered: Any) -> Any:
    if not isinstance(codes, np.ndarray) or codes.dtype.kind != "i" or codes.ndim != 1:
        raise damaged(node, "its codes are not integers")
    dtype = pd.CategoricalDtype(categories, ordered=bool(ordered))
    # from_codes checks all codes once: pandas itself trusts them, so an invalid one would read arbitrary memory.
    return pd.Categorical.from_codes(codes, dtype=dtype)


def decode_codes(node: Node, decoder: Decoder, categories: int) -> Any:
    """Decode codes into ``categories`` labels: a child array of integers from -1 on, each checked."""
    codes = decode_ndarray(node, decoder)
    if codes.dtype.kind != "i" or codes.ndim != 1:
        raise damaged(node, "codes are not integers")
    if codes.size and (int(codes.min()) < -1 or int(codes.max()) >= categories):
        raise damaged(node, f"a code is out of range for {categories} labels")
    return codes
