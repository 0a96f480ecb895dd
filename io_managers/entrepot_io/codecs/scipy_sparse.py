"""SciPy's sparse arrays and matrices: their own arrays, without a copy, each with the dtype that it had.

SciPy follows indices unchecked, so each is checked once on get. Its constructors may narrow the indices to 32 bits,
which copies them; an empty array of the class is therefore made first, and then given its parts. ``lil`` and ``dok``
consist of Python objects and are stored as ``csr`` and ``coo``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType
from scipy import sparse

from entrepot_io.codecs.numpy_arrays import decode_ndarray
from entrepot_io.codecs.validation import CheckedCodec, damaged, fields, sizes

FORMATS = ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
_CLASSES: dict[str, Any] = {
    name: getattr(sparse, name)
    for name in (f"{form}_{kind}" for form in FORMATS for kind in ("array", "matrix"))
    if hasattr(sparse, name)
}
_INDEX_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))


class SparseCodec(CheckedCodec):
    """All classes of ``scipy.sparse``. params: [class, shape, indices sorted, format canonical]; children: data, then
    indices and indptr (``csr``, ``csc``, ``bsr``), one array of coordinates for each axis (``coo``), or offsets
    (``dia``).

    The flags are None where SciPy has not determined them yet; it then does so after a get, when it needs them.
    """

    name = "scipy.sparse"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        name = type(value).__name__
        if value.dtype.hasobject:
            raise UnsupportedType(f"a {name} of dtype {value.dtype} needs pickling: convert it to a numeric dtype")
        stored = value
        if value.format == "lil":
            stored = value.tocsr()
            if not stored.has_canonical_format:
                raise UnsupportedType(f"a {name} whose rows are not in order needs pickling: sort them")
        elif value.format == "dok":
            stored = value.tocoo()
        if stored.format == "coo":
            parts = [stored.data, *_coordinates(stored)]
            flags = [None, bool(stored.has_canonical_format)]
        elif stored.format == "dia":
            parts, flags = [stored.data, stored.offsets], [None, None]
        else:
            parts = [stored.data, stored.indices, stored.indptr]
            attributes = vars(stored)  # the public properties would determine the flags now, which reads all indices
            flags = [attributes.get("_has_sorted_indices"), attributes.get("_has_canonical_format")]
        if any(part.dtype not in _INDEX_DTYPES for part in parts[1:]):
            raise UnsupportedType(f"a {name} with indices of other dtypes than int32 and int64 needs pickling")
        children = [encoder.encode(np.ascontiguousarray(part) if _has_gaps(part) else part) for part in parts]
        flags = [None if flag is None else bool(flag) for flag in flags]
        return Node(self.name, self.version, [name, list(map(int, value.shape)), *flags], children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        name, raw_shape, are_sorted, canonical = fields(node, 4)
        cls = _CLASSES.get(name) if isinstance(name, str) else None
        if cls is None:
            raise damaged(node, f"this release of SciPy has no class {name!r}")
        if any(flag not in (None, True, False) for flag in (are_sorted, canonical)):
            raise damaged(node, "its flags are neither true nor false")
        shape = tuple(sizes(node, raw_shape))
        parts = [decode_ndarray(item, decoder) for item in node.children]
        if len(parts) < 2:
            raise damaged(node, "it lacks data or indices")
        data, indices = parts[0], parts[1:]
        for part in indices:
            # One element of stride 0 could stand for any number of them.
            if part.dtype not in _INDEX_DTYPES or part.ndim != 1 or not part.flags.c_contiguous:
                raise damaged(node, f"its indices are {part.ndim}-dimensional, of dtype {part.dtype}")
        form = name.partition("_")[0]
        if form in ("coo", "dok"):
            return self._coordinate(node, cls, form, shape, data, indices, bool(canonical))
        if form == "dia":
            return self._diagonal(node, cls, shape, data, indices)
        return self._compressed(node, cls, form, shape, data, indices, (are_sorted, canonical))

    def _compressed(
        self, node: Node, cls: Any, form: str, shape: Any, data: Any, parts: list[Any], flags: tuple[Any, Any]
    ) -> Any:
        if len(parts) != 2 or len(shape) not in (1, 2) or data.ndim != (3 if form == "bsr" else 1):
            raise damaged(node, "its parts do not form compressed rows or columns")
        indices, indptr = parts
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        options: dict[str, Any] = {}
        if form == "csc":
            rows, columns = columns, rows
        elif form == "bsr":
            height, width = data.shape[1:]
            if not height or not width or rows % height or columns % width:
                raise damaged(node, f"blocks of {height} by {width} do not fill {rows} by {columns}")
            rows, columns, options = rows // height, columns // width, {"blocksize": (height, width)}
        if len(indptr) != rows + 1 or len(indices) != len(data):
            raise damaged(node, f"it has {len(indptr)} pointers, {len(indices)} indices and {len(data)} values")
        if indptr[0] != 0 or indptr[-1] > len(indices) or (indptr[1:] < indptr[:-1]).any():
            raise damaged(node, "its pointers do not ascend from 0 to the number of indices")
        _check_range(node, indices, columns)
        if form == "lil":
            # The indices of a lil are sorted and unique; SciPy would otherwise make them so, in place.
            rows_of = _filled(sparse.csr_array(shape), data, indices=indices, indptr=indptr)
            if not rows_of.has_canonical_format:
                raise damaged(node, "the columns of a row are not in order")
            return cls(rows_of.tolil())
        filled = _filled(cls(shape, **options), data, indices=indices, indptr=indptr)
        are_sorted, canonical = flags
        # Set one after the other: a canonical format implies sorted indices.
        if canonical is not None:
            filled.has_canonical_format = canonical
        if are_sorted is not None:
            filled.has_sorted_indices = are_sorted
        return filled

    def _coordinate(
        self, node: Node, cls: Any, form: str, shape: Any, data: Any, coordinates: list[Any], canonical: bool
    ) -> Any:
        if len(coordinates) != len(shape) or data.ndim != 1 or any(len(part) != len(data) for part in coordinates):
            raise damaged(node, "it does not have one coordinate for each value and axis")
        for part, length in zip(coordinates, shape, strict=True):
            _check_range(node, part, length)
        if form == "dok":
            # Claims a canonical format, so that SciPy does not reorder the elements.
            parts = _filled(sparse.coo_array(shape), data, coords=tuple(coordinates))
            parts.has_canonical_format = True
            return cls(parts.todok())
        filled = _filled(cls(shape), data, coords=tuple(coordinates))
        filled.has_canonical_format = canonical
        return filled

    def _diagonal(self, node: Node, cls: Any, shape: Any, data: Any, parts: list[Any]) -> Any:
        if len(parts) != 1 or len(shape) != 2 or data.ndim != 2 or len(parts[0]) != len(data):
            raise damaged(node, "its parts do not form diagonals")
        if len(np.unique(parts[0])) != len(parts[0]):
            raise damaged(node, "a diagonal occurs twice")
        return _filled(cls(shape), data, offsets=parts[0])


def _coordinates(value: Any) -> tuple[Any, ...]:
    coordinates: tuple[Any, ...] | None = getattr(value, "coords", None)
    if coordinates is None:
        raise UnsupportedType("coordinates of this release of SciPy need pickling: upgrade to SciPy 1.13 or newer")
    return coordinates


def _has_gaps(part: Any) -> bool:
    return not part.flags.c_contiguous


def _check_range(node: Node, indices: Any, length: int) -> None:
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= length):
        raise damaged(node, f"an index is out of range for {length} elements")


def _filled(made: Any, data: Any, **parts: Any) -> Any:
    """The empty sparse array with these parts instead of its own."""
    made.data = data
    for name, part in parts.items():
        setattr(made, name, part)
    return made
