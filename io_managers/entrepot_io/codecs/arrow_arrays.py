"""Arrow arrays as plain descriptions over buffers, and back, without Arrow's IPC and without copying buffers.

An array is described by ``[length, offset, null count, buffers, children, dictionary]``. A buffer is an index into the
node's list of buffers, an inlined short byte string, or None; null count -1 means "not counted". Types are not repeated
in the description: the reader gets the type separately.

**Sharing and trimming.** A slice of an array points into its parent's buffers. Normally the whole parent buffer is
passed on with the slice's offset, because the encoder stores equal buffers once however many chunks point into them. If
the slices of a column need less than half of what they point into, they are *trimmed*: only the range in use is passed
on (rounded to 8 elements, since validity is a bit per element), and offsets of variable-width data are rewritten to
start at zero; string views are copied to new, compact text. List views, unions, run-end-encoded arrays and dictionaries
are never trimmed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.arrow_physical_layouts import PhysicalLayout, physical_layout, view_bits
from entrepot_io.codecs.arrow_versions import check_views
from entrepot_io.codecs.validation import MAX_INT64, damaged, size

# The module's functions are created at import, which type checkers cannot see.
pc: Any = pyarrow.compute

# Shorter buffers are inlined in the description: a separate buffer costs more than it holds.
INLINE_BYTES = 128
# Inline only for arrays no larger than this: inlined data is validated value by value, because a damaged description
# must not be able to crash a reader.
_INLINE_ARRAY_BYTES = 64 * 1024
# Minimum saving for trimming.
_TRIM_BYTES = 64 * 1024
# Views that are read at first, and at most, at a time to find out how much text they show.
_FIRST_VIEWS = 1 << 12
_MAX_VIEWS = 1 << 18
# The usual layouts: told apart at once, because this is part of every put.
_WITHOUT_VIEWS = (PhysicalLayout.FIXED_WIDTH, PhysicalLayout.LARGE_BINARY, PhysicalLayout.BINARY)
_MAX_NESTING = 64


def worth_trimming(array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether an array uses less than half of the buffers it points into."""
    try:
        total = array.get_total_buffer_size()
        if total < _TRIM_BYTES:
            return False
        if physical_layout(array.type) in _WITHOUT_VIEWS or not _has_views(array.type):
            return _saves_much(total, array.nbytes)
        # nbytes would count all text that the views could point to. Views are read only until enough is in use.
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        used = itertools.accumulate(itertools.chain.from_iterable(_bytes_in_use(chunk, 0) for chunk in chunks))
        return all(_saves_much(total, nbytes) for nbytes in used)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False  # older Arrow releases do not support this for every type


def _saves_much(total: int, used: int) -> bool:
    return total > 2 * used and total - used >= _TRIM_BYTES


def _has_views(type_: Any) -> bool:
    """Whether an array of this type has views of text that can be trimmed."""
    layout = physical_layout(type_)
    if layout is PhysicalLayout.EXTENSION:
        return _has_views(type_.storage_type)
    if layout in (PhysicalLayout.STRUCT, PhysicalLayout.FIXED_LIST) or (layout.offset_bits and not layout.is_binary):
        return any(_has_views(child) for child in layout.child_types(type_))
    return layout is PhysicalLayout.VIEW


def _bytes_in_use(array: pa.Array, depth: int) -> Iterator[int]:
    """Yield the bytes that an array uses, in portions; validity bitmaps are left out."""
    layout = physical_layout(array.type)
    if depth > _MAX_NESTING or not _has_views(array.type):
        yield array.nbytes
    elif layout is PhysicalLayout.EXTENSION:
        yield from _bytes_in_use(array.storage, depth + 1)
    elif layout is PhysicalLayout.VIEW:
        yield 16 * len(array)
        start, count = 0, _FIRST_VIEWS
        while start < len(array):
            yield _text_bytes(array.slice(start, count))
            start, count = start + count, min(2 * count, _MAX_VIEWS)
    elif layout is PhysicalLayout.STRUCT:
        for index in range(array.type.num_fields):
            yield from _bytes_in_use(array.field(index), depth + 1)
    elif layout is PhysicalLayout.FIXED_LIST:
        width = array.type.list_size
        yield from _bytes_in_use(array.values.slice(array.offset * width, len(array) * width), depth + 1)
    elif len(array):
        yield len(array) * layout.offset_bits // 8
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        yield from _bytes_in_use(array.values.slice(first, last - first), depth + 1)


class ArrayWriter:
    """Describes the arrays of one node. Single use."""

    def __init__(self, encoder: Encoder, node: Node) -> None:
        self._encoder = encoder
        self._node = node
        self._positions: dict[int, int] = {}  # index of a buffer in the object -> its position in the node
        self._inline = False  # whether the current array is small enough to inline buffers

    def write(self, array: pa.Array, *, trim: bool = False) -> list[Any]:
        """The description of ``array``.

        Raises:
            UnsupportedType: its memory is not the CPU's, or it is nested too deeply.
        """
        self._inline = array.get_total_buffer_size() <= _INLINE_ARRAY_BYTES
        return self._write(array, array.offset, len(array), trim, 0)

    def _write(self, array: pa.Array, start: int, length: int, trim: bool, depth: int) -> list[Any]:
        """Describe elements ``start`` to ``start + length``, counted from the start of the array's buffers."""
        if depth > _MAX_NESTING:
            raise UnsupportedType(f"an Arrow type is nested more than {_MAX_NESTING} levels deep: flatten it")
        layout = physical_layout(array.type)
        if layout is PhysicalLayout.EXTENSION:
            storage = array.storage
            return self._write(storage, storage.offset + start - array.offset, length, trim, depth + 1)
        if trim and length == 0:
            array, start, trim = _empty_like(array), 0, False
        if trim and layout is PhysicalLayout.VIEW:
            array = _compact_views(pa.Array.from_buffers(array.type, length, array.buffers(), -1, start))
            start = array.offset
        trim = trim and layout not in (
            PhysicalLayout.VIEW,
            PhysicalLayout.LIST_VIEW,
            PhysicalLayout.SPARSE_UNION,
            PhysicalLayout.DENSE_UNION,
            PhysicalLayout.RUN_END,
        )
        exact = start == array.offset and length == len(array)
        null_count = array.null_count if exact else -1
        # Where the described buffers start, and the array's offset relative to that.
        base = start - start % 8 if trim else 0
        offset = start - base
        end = offset + length
        source_buffers = (array.indices if layout is PhysicalLayout.DICTIONARY else array).buffers()
        buffers: list[Any] = []
        children: list[Any] = []
        dictionary: list[Any] | None = None
        if layout.has_validity:
            buffers.append(self._buffer(source_buffers[0], base, end, 1, trim))
        if layout in (PhysicalLayout.FIXED_WIDTH, PhysicalLayout.DICTIONARY):
            width = (array.type.index_type if layout is PhysicalLayout.DICTIONARY else array.type).bit_width
            buffers.append(self._buffer(source_buffers[1], base, end, width, trim))
            if layout is PhysicalLayout.DICTIONARY:
                values = array.dictionary
                dictionary = self._write(values, values.offset, len(values), False, depth + 1)
        elif layout is PhysicalLayout.VIEW:
            buffers += [self._buffer(item) for item in source_buffers[1:]]
        elif layout.offset_bits and layout.is_binary:
            offsets, first, last = self._offsets(source_buffers[1], base, end, layout.offset_bits, trim)
            buffers.append(offsets)
            data = (
                source_buffers[2].slice(first, last - first)
                if trim and source_buffers[2] is not None
                else source_buffers[2]
            )
            buffers.append(self._buffer(data))
        elif layout.offset_bits:
            values = array.values
            offsets, first, last = self._offsets(source_buffers[1], base, end, layout.offset_bits, trim)
            buffers.append(offsets)
            first, count = (first, last - first) if trim else (0, len(values))
            children.append(self._write(values, values.offset + first, count, trim, depth + 1))
        elif layout is PhysicalLayout.LIST_VIEW:
            buffers += [self._buffer(source_buffers[1]), self._buffer(source_buffers[2])]
            values = array.values
            children.append(self._write(values, values.offset, len(values), False, depth + 1))
        elif layout is PhysicalLayout.FIXED_LIST:
            values, width = array.values, array.type.list_size
            first, count = (base * width, end * width) if trim else (0, len(values))
            children.append(self._write(values, values.offset + first, count, trim, depth + 1))
        elif layout in (PhysicalLayout.STRUCT, PhysicalLayout.SPARSE_UNION):
            if layout is PhysicalLayout.SPARSE_UNION:
                buffers.append(self._buffer(source_buffers[1]))
            # field() has sliced the child to this array's elements; undo that down to the base.
            for index in range(array.type.num_fields):
                values = array.field(index)
                children.append(self._write(values, values.offset + base - array.offset, end, trim, depth + 1))
        elif layout is PhysicalLayout.DENSE_UNION:
            buffers += [self._buffer(source_buffers[1]), self._buffer(source_buffers[2])]
            for index in range(array.type.num_fields):
                values = array.field(index)
                children.append(self._write(values, values.offset, len(values), False, depth + 1))
        elif layout is PhysicalLayout.RUN_END:
            for values in (array.run_ends, array.values):
                children.append(self._write(values, values.offset, len(values), False, depth + 1))
        return [length, offset, null_count, buffers, children, dictionary]

    def _buffer(self, buffer: Any, base: int = 0, end: int = 0, bits: int = 8, trim: bool = False) -> Any:
        if buffer is None:
            return None
        if not buffer.is_cpu:
            raise UnsupportedType("an Arrow buffer is in device memory: copy it to the CPU first")
        if trim:
            first = base * bits // 8
            buffer = buffer.slice(first, min((end * bits + 7) // 8, buffer.size - first))
        if buffer.size == 0 or (self._inline and buffer.size <= INLINE_BYTES):
            return self._encoder.add_inlined(buffer.to_pybytes())
        index = self._encoder.add_buffer(buffer, buffer.address)
        position = self._positions.get(index)
        if position is None:
            position = self._positions[index] = len(self._node.buffers)
            self._node.buffers.append(index)
        return position

    def _offsets(self, buffer: pa.Buffer | None, base: int, end: int, bits: int, trim: bool) -> tuple[Any, int, int]:
        """Describe the offsets; for a trimmed array, also return the first and last offset in use."""
        if not trim or buffer is None:
            return self._buffer(buffer), 0, 0
        offset_type = pa.int32() if bits == 32 else pa.int64()
        offsets = pa.Array.from_buffers(offset_type, end + 1, [None, buffer], 0, base)
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first:
            offsets = pc.subtract(offsets, pa.scalar(first, offset_type))
        # Respect the result's own offset: it may be a new array or still the parent's.
        data = offsets.buffers()[1].slice(offsets.offset * bits // 8, (end + 1) * bits // 8)
        return self._buffer(data), first, last


def _text_bytes(array: pa.Array) -> int:
    """Bytes of text shown by an array of views: the sum of the lengths, which are the first of four words in each
    view.
    """
    words = pa.Array.from_buffers(pa.int32(), 4 * (array.offset + len(array)), [None, array.buffers()[1]])
    views = pa.FixedSizeListArray.from_arrays(words, 4).slice(array.offset)
    return pc.sum(pc.list_element(views, 0)).as_py() or 0


def _compact_views(array: pa.Array) -> pa.Array:
    """The same views over only the text that they show."""
    plain_type = pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary()
    try:
        return array.cast(plain_type).cast(array.type)
    except pa.ArrowException:  # text beyond the 2 GiB that a view can address
        return array


def _empty_like(array: pa.Array) -> pa.Array:
    try:
        return pa.array([], type=array.type)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return array.slice(0, 0)


class ArrayReader:
    """Rebuilds the arrays of one node over the object's buffers. Single use.

    Every length is compared with the buffer it covers before Arrow sees it; ``validate()`` then checks what depends on
    the first and last offsets. The values themselves are not read, except inlined ones.
    """

    def __init__(self, node: Node, decoder: Decoder) -> None:
        self._node = node
        self._decoder = decoder
        self._buffers: dict[int, pa.Buffer] = {}
        self._has_inline_buffers = False  # whether the current array has an inlined buffer

    def read(self, type_: pa.DataType, described: Any) -> pa.Array:
        """The array of type ``type_`` that ``described`` describes.

        Raises:
            CorruptData: the description does not match the type or the buffers.
        """
        self._has_inline_buffers = False
        try:
            array = self._read(type_, described, 0)
            array.validate(full=self._has_inline_buffers)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise damaged(self._node, f"not an Arrow array of type {type_}: {error}") from error
        return array

    def _read(self, type_: pa.DataType, described: Any, depth: int) -> pa.Array:
        node = self._node
        layout = physical_layout(type_)
        if layout is PhysicalLayout.EXTENSION:
            return pa.ExtensionArray.from_storage(type_, self._read(type_.storage_type, described, depth + 1))
        if not isinstance(described, list) or len(described) != 6 or depth > 2 * _MAX_NESTING:
            raise damaged(node, "an array's description is invalid")
        length, offset, null_count, raw_buffers, raw_children, raw_dictionary = described
        end = size(node, length) + size(node, offset)
        if end > MAX_INT64:
            raise damaged(node, f"an array ends at element {end}")
        if not isinstance(raw_buffers, list) or not isinstance(raw_children, list):
            raise damaged(node, "an array has no lists of buffers and children")
        buffers = [self._buffer(item) for item in raw_buffers]
        if type(null_count) is not int or not -1 <= null_count <= length:
            raise damaged(node, f"{null_count!r} nulls in an array of {length}")
        if layout.has_validity and buffers and buffers[0] is None and null_count > 0:
            raise damaged(node, "an array has nulls but no validity buffer")
        self._check_buffers(layout, type_, buffers, end)
        if not layout.has_validity:
            buffers.insert(0, None)
            if layout is not PhysicalLayout.NULL:
                null_count = 0
        children = self._children(layout, type_, raw_children, end, depth)
        if layout is PhysicalLayout.DICTIONARY:
            dictionary = self._read(type_.value_type, raw_dictionary, depth + 1)
            return pa.DictionaryArray.from_buffers(type_, length, buffers, dictionary, null_count, offset)
        if layout is PhysicalLayout.RUN_END:
            return pa.RunEndEncodedArray.from_buffers(type_, length, buffers, null_count, offset, children)
        return pa.Array.from_buffers(type_, length, buffers, null_count, offset, children or None)

    def _buffer(self, reference: Any) -> pa.Buffer | None:
        if reference is None:
            return None
        if isinstance(reference, bytes):
            self._has_inline_buffers = self._has_inline_buffers or bool(reference)
            return pa.py_buffer(reference)
        if type(reference) is not int or not 0 <= reference < len(self._node.buffers):
            raise damaged(self._node, f"it has no buffer {reference!r}")
        buffer = self._buffers.get(reference)
        if buffer is None:
            buffer = pa.py_buffer(self._decoder.buffer(self._node.buffers[reference]))
            self._buffers[reference] = buffer
        return buffer

    def _check_buffers(
        self, layout: PhysicalLayout, type_: pa.DataType, buffers: list[pa.Buffer | None], end: int
    ) -> None:
        bits = [1] if layout.has_validity else []
        extra = 0
        if layout in (PhysicalLayout.FIXED_WIDTH, PhysicalLayout.DICTIONARY):
            bits.append((type_.index_type if layout is PhysicalLayout.DICTIONARY else type_).bit_width)
        elif layout is PhysicalLayout.VIEW:
            check_views(self._node, len(buffers) - 2)
            bits.append(128)
        elif layout is PhysicalLayout.LIST_VIEW:
            bits += [view_bits(type_)] * 2
        elif layout is PhysicalLayout.SPARSE_UNION:
            bits.append(8)
        elif layout is PhysicalLayout.DENSE_UNION:
            bits += [8, 32]
        elif layout.offset_bits:
            bits.append(layout.offset_bits)
            extra = 1
        count = len(bits) + (1 if layout.is_binary and layout is not PhysicalLayout.VIEW else 0)
        if len(buffers) < count or (layout is not PhysicalLayout.VIEW and len(buffers) != count):
            raise damaged(self._node, f"an array of type {type_} has {len(buffers)} buffers, expected {count}")
        if any(buffer is None for buffer in buffers[len(bits) :]) and layout is PhysicalLayout.VIEW:
            raise damaged(self._node, f"an array of type {type_} lacks a data buffer")
        for position, width in enumerate(bits):
            elements = end + extra if end and position == len(bits) - 1 else end
            buffer = buffers[position]
            needed = (elements * width + 7) // 8
            if buffer is None:
                if needed and not (position == 0 and layout.has_validity):
                    raise damaged(self._node, f"buffer {position} of an array of type {type_} is missing")
            elif buffer.size < needed:
                raise damaged(
                    self._node,
                    f"buffer {position} of an array of type {type_} has {buffer.size} bytes, but needs {needed}",
                )

    def _children(
        self, layout: PhysicalLayout, type_: pa.DataType, described: list[Any], end: int, depth: int
    ) -> list[pa.Array]:
        types = layout.child_types(type_)
        if len(types) != len(described):
            raise damaged(self._node, f"an array of type {type_} has {len(described)} children, expected {len(types)}")
        children = [self._read(item, raw, depth + 1) for item, raw in zip(types, described, strict=True)]
        needed = 0
        if layout in (PhysicalLayout.STRUCT, PhysicalLayout.SPARSE_UNION):
            needed = end
        elif layout is PhysicalLayout.FIXED_LIST:
            needed = end * type_.list_size
        for item in children:
            if len(item) < needed:
                raise damaged(self._node, f"a child of an array of type {type_} has {len(item)} of {needed} elements")
        return children
