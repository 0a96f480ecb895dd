"""NumPy arrays and scalars: bytes as they are in memory, axis order preserved, dense arrays not copied.

The result is an array over the stored bytes, read-only with ``copy="never"``. ``numpy.memmap`` is restored as
``numpy.ndarray`` (its bytes are no longer that file's); ``numpy.matrix`` and ``numpy.recarray`` are restored as such.
Arrays of Python objects and of variable-width text (``StringDType``) are left to pickle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.numpy_dtypes import describe_dtype, restore_dtype
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields, sizes

# Arrays up to this many bytes are inlined in the node: a separate buffer would cost more than it holds.
INLINE_BYTES = 512
# Small or contiguous arrays inside a pickled object are left to pickle, which preserves them just as well.
_PICKLE_BYTES = 4096

_MAX_DIMENSIONS = 64


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Address of the array's first element."""
    return int(array.__array_interface__["data"][0])


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of a C-contiguous array of any dtype, without a copy."""
    if array.nbytes == 0:
        return memoryview(b"")
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def dense_axes(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The axes in memory order, outermost first; ties keep their original order."""
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


class ArrayCodec(CheckedCodec):
    """``numpy.ndarray`` and its standard subclasses.

    params: [class, dtype, shape, axes, broadcast, inline bytes or None]. ``axes`` lists the axes in memory order (None
    for C order); ``broadcast`` lists the axes that repeat one element (stride 0), stored once; a reader that may write
    gets a copy in which nothing is repeated.
    """

    name = "numpy.ndarray"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        kind = "ndarray"
        if isinstance(value, np.recarray):
            kind = "recarray"
        elif isinstance(value, np.matrix):
            kind = "matrix"
        dtype = describe_dtype(value.dtype)
        if type(value) is np.ndarray and value.nbytes > INLINE_BYTES and value.flags.c_contiguous:
            buffer = encoder.add_buffer(as_bytes(value), address_of(value))
            return Node(self.name, self.version, [kind, dtype, list(value.shape), None, [], None], [buffer])
        array = value.view(np.ndarray) if type(value) is not np.ndarray else value
        repeated = [axis for axis in range(array.ndim) if array.strides[axis] == 0 and array.shape[axis] > 1]
        if repeated and array.size:
            array = array[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(array.ndim))]
        else:
            repeated = []
        axes: list[int] | None = None
        if not array.flags.c_contiguous:
            order = dense_axes(array)
            array = array.transpose(order)
            axes = list(order) if order != tuple(range(array.ndim)) else None
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
        node = Node(self.name, self.version)
        inline: bytes | None = None
        if array.nbytes <= INLINE_BYTES:
            inline = encoder.add_inlined(array.tobytes())
        else:
            node.buffers.append(encoder.add_buffer(as_bytes(array), address_of(array)))
        node.params = [kind, dtype, list(value.shape), axes, repeated, inline]
        return node

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        kind, described, raw_shape, axes, repeated, inline = fields(node, 6)
        dtype = restore_dtype(described)
        shape = sizes(node, raw_shape)
        if len(shape) > _MAX_DIMENSIONS:
            raise damaged(node, f"it has {len(shape)} dimensions, more than {_MAX_DIMENSIONS}")
        if kind == "ndarray" and axes is None and repeated == []:
            data = self._data(node, decoder, inline, math.prod(shape) * dtype.itemsize)
            return np.ndarray(tuple(shape), dtype, buffer=data)
        order = list(range(len(shape))) if axes is None else sizes(node, axes)
        if sorted(order) != list(range(len(shape))) or any(axis >= len(shape) for axis in sizes(node, repeated)):
            raise damaged(node, "its axes do not match its shape")
        stored_shape = [1 if axis in repeated else shape[axis] for axis in order]
        data = self._data(node, decoder, inline, math.prod(stored_shape) * dtype.itemsize)
        array: Any = np.ndarray(tuple(stored_shape), dtype, buffer=data)
        if axes is not None:
            array = array.transpose([order.index(axis) for axis in range(len(shape))])
        if repeated:
            strides = [0 if axis in repeated else array.strides[axis] for axis in range(len(shape))]
            array = np.lib.stride_tricks.as_strided(array, tuple(shape), tuple(strides), writeable=False)
            if decoder.writable:  # a write to an element would be one to all that repeat it
                array = np.array(array, order="C")
        if kind == "recarray":
            return array.view(np.recarray)
        if kind == "matrix":
            return array.view(np.matrix)
        if kind != "ndarray":
            raise damaged(node, f"unknown kind of array {kind!r}")
        return array

    def _data(self, node: Node, decoder: Decoder, inline: Any, expected_bytes: int) -> Any:
        if inline is None:
            if not node.buffers:
                raise damaged(node, "it has neither bytes nor a buffer")
            data = decoder.buffer(node.buffers[0])
        elif isinstance(inline, bytes):
            # NumPy needs memory to point at even for zero bytes, so give it a spare byte.
            data = bytearray(inline or b"\0") if decoder.writable else inline or b"\0"
        else:
            raise damaged(node, "its inline data is not bytes")
        actual_bytes = memoryview(data).nbytes if inline is None else len(inline)
        if actual_bytes != expected_bytes:
            raise damaged(node, f"its shape and dtype require {expected_bytes} bytes, but it has {actual_bytes}")
        return data

    def wanted_in_pickle(self, value: Any) -> bool:
        """NumPy's own reduction passes contiguous arrays out of band, but copies others into the stream."""
        return value.nbytes >= _PICKLE_BYTES and not value.flags.contiguous and not value.flags.f_contiguous


class ScalarCodec(CheckedCodec):
    """``numpy.generic``. params: [dtype, bytes]; for text and bytes, which have no fixed dtype, [kind, value]."""

    name = "numpy.generic"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        cls = type(value)
        if cls is np.str_:  # str(value) would drop trailing NULs
            return Node(
                self.name, self.version, ["str", encoder.add_inlined(str.encode(value, "utf-8", "surrogatepass"))]
            )
        if cls is np.bytes_:
            return Node(self.name, self.version, ["bytes", encoder.add_inlined(b"".join([value]))])
        dtype = value.dtype
        if dtype.type is not cls:
            raise UnsupportedType(
                f"a NumPy scalar of the subclass {cls.__qualname__} needs pickling: convert it to {dtype.type.__name__}"
            )
        return Node(self.name, self.version, [describe_dtype(dtype), encoder.add_inlined(value.tobytes())])

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        described, data = fields(node, 2)
        if not isinstance(data, bytes):
            raise damaged(node, "its value is not bytes")
        if described == "str":
            return np.str_(data.decode("utf-8", "surrogatepass"))
        if described == "bytes":
            return np.bytes_(data)
        dtype = restore_dtype(described)
        if len(data) != dtype.itemsize:
            raise damaged(node, f"{dtype} requires {dtype.itemsize} bytes, but it has {len(data)}")
        # A structured scalar is a view of its array; a private bytearray keeps it writable, as it was.
        return np.ndarray((1,), dtype, buffer=bytearray(data or b"\0"))[0]

    def wanted_in_pickle(self, value: Any) -> bool:
        """Pickle preserves scalars exactly, and in less space."""
        return False


class MaskedArrayCodec(CheckedCodec):
    """``numpy.ma.MaskedArray``: data, mask and fill value as children; params are [hard mask, has a mask]."""

    name = "numpy.ma.MaskedArray"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        array: Any = value
        if array.baseclass is not np.ndarray:
            raise UnsupportedType(
                f"a masked array over {array.baseclass.__qualname__} needs pickling: use a masked numpy.ndarray"
            )
        has_mask = array.mask is not np.ma.nomask
        parts = [np.ma.getdata(array), np.asarray(array.fill_value, dtype=array.dtype)]
        if has_mask:
            parts.append(np.ma.getmaskarray(array))
        for part in parts:
            describe_dtype(part.dtype)
        children = [encoder.encode(part) for part in parts]
        return Node(self.name, self.version, [bool(array.hardmask), has_mask], children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        hard_mask, has_mask = fields(node, 2)
        data = decode_ndarray(child(node, 0), decoder)
        fill_value = decode_ndarray(child(node, 1), decoder)
        mask: Any = np.ma.nomask
        if has_mask:
            mask = decode_ndarray(child(node, 2), decoder)
            if mask.shape != data.shape:
                raise damaged(node, f"its mask has shape {mask.shape}, its data {data.shape}")
        if fill_value.shape != ():
            raise damaged(node, f"its fill value has shape {fill_value.shape}")
        masked: Any = np.ma.MaskedArray(data, mask=mask, copy=False, hard_mask=bool(hard_mask))
        masked.fill_value = fill_value[()]
        return masked


class DtypeCodec(CheckedCodec):
    """``numpy.dtype``. params: the described dtype."""

    name = "numpy.dtype"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(self.name, self.version, describe_dtype(value))

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        return restore_dtype(node.params)

    def wanted_in_pickle(self, value: Any) -> bool:
        """Pickle preserves dtypes exactly, and each array has one."""
        return False


def decode_ndarray(node: Node, decoder: Decoder) -> np.ndarray[Any, Any]:
    """Decode a child that must be an array."""
    array = decoder.decode(node)
    if not isinstance(array, np.ndarray):
        raise damaged(node, f"expected an array, found {type(array).__name__}")
    return array
