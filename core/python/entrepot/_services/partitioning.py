"""To which partition rows belong: a hash of their keys, computed in C++ over Arrow's buffers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from entrepot import _core
from entrepot.errors import InvalidArgument, UnsupportedType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_HASHES = (1 << 32) - 1  # hash_partitions of so many "partitions" is a hash of 32 bits
_NULL_HASH = 0x9E3779B1
_MULTIPLIER = 0x9E3779B97F4A7C15


def partition_numbers(columns: list[pa.Array], partitions: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the partition of each row, by the values of its key columns.

    Equal values of one type are in one partition, in all processes. Null is a value like others; so is NaN, and -0.0 is
    0.0. Categories go by their text.

    Raises:
        UnsupportedType: a column of lists, structs or the like.
    """
    import numpy as np

    total = _hashes(columns[0]).astype(np.uint64)
    for column in columns[1:]:
        total = (total * np.uint64(_MULTIPLIER) + _hashes(column)) * np.uint64(_MULTIPLIER) >> np.uint64(32)
    return cast("np.ndarray[Any, np.dtype[np.uint32]]", ((total * np.uint64(partitions)) >> np.uint64(32)).astype("u4"))


def given_numbers(given: Any, rows: int, partitions: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return partition numbers that a caller computed.

    Raises:
        InvalidArgument: they are no integers, not one for each row, or one is out of range.
    """
    import numpy as np

    numbers = np.asarray(given)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise InvalidArgument(
            f"partition numbers must be integers along one axis, but got {numbers.dtype} of shape {numbers.shape}"
        )
    if len(numbers) != rows:
        raise InvalidArgument(f"there are {rows} rows, but {len(numbers)} partition numbers")
    if numbers.size and (numbers.min() < 0 or numbers.max() >= partitions):
        row = int(np.flatnonzero((numbers < 0) | (numbers >= partitions))[0])
        raise InvalidArgument(
            f"row {row} is for partition {numbers[row]}, which does not exist: the partitions are 0 to {partitions - 1}"
        )
    return np.ascontiguousarray(numbers, np.uint32)


def _hashes(column: pa.Array) -> np.ndarray[Any, Any]:
    import numpy as np

    raw = _core.hash_partitions(*key_buffers(column), _HASHES)
    hashes = np.frombuffer(raw, np.uint32)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint32(_NULL_HASH), hashes)
    return hashes


def key_buffers(column: pa.Array) -> tuple[Any, int, Any, int]:
    """Return data, width, offsets and bytes of an offset, as ``_core.hash_partitions`` takes them.

    Equal values have equal bytes: NaN is one of many, and -0.0 is 0.0.

    Raises:
        UnsupportedType: a column of lists, structs or the like.
    """
    import pyarrow as pa

    pc: Any = import_module("pyarrow.compute")  # whose functions are made at run time
    kind, rows = column.type, len(column)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    elif pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 becomes 0.0
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)  # of many, one
    kind = column.type
    offset = column.offset
    buffers = column.buffers()
    if rows == 0:
        return b"", 1, None, 0
    offset_bytes = _offset_bytes(kind)
    if offset_bytes:
        places = memoryview(buffers[1])[offset * offset_bytes : (offset + rows + 1) * offset_bytes]
        return buffers[2] or b"", 0, places, offset_bytes
    try:
        width = kind.bit_width // 8
    except ValueError:
        width = 0
    if not width or len(buffers) != 2:
        raise UnsupportedType(f"a column of type {kind} cannot be a key: use numbers, times, text or bytes")
    return memoryview(buffers[1])[offset * width : (offset + rows) * width], width, None, 0


def key_width(kind: pa.DataType) -> int:
    """Return the bytes of each value as :func:`key_buffers` has them; 0: they have offsets.

    Raises:
        UnsupportedType: as :func:`key_buffers`.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return key_width(kind.value_type)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return 1
    if _offset_bytes(kind):
        return 0
    try:
        width: int = kind.bit_width // 8
    except ValueError:
        width = 0
    if not width or kind.num_fields:
        raise UnsupportedType(f"a column of type {kind} cannot be a key: use numbers, times, text or bytes")
    return width


def _offset_bytes(kind: pa.DataType) -> int:
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 4
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return 8
    return 0


def key_columns(columns: list[pa.Array]) -> list[_core.KeyColumn]:
    """Return columns as the extension takes keys that may be null."""
    made: list[_core.KeyColumn] = []
    for column in columns:
        made.append((*key_buffers(column), validity(column)))
    return made


def validity(column: pa.Array) -> Any:
    """Return a byte for each row, 0 for null; None: no row is null."""
    import numpy as np

    if not column.null_count:
        return None
    return column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def record_buffers(records: Any, record_bytes: int) -> tuple[Any, int, Any, int, int]:
    """Return records as ``Appender.append_many`` takes them, and their number.

    Raises:
        InvalidArgument: they are not of the shuffle's length, or null.
        UnsupportedType: something else.
    """
    import numpy as np

    if record_bytes:
        array = np.ascontiguousarray(records)
        width = array.nbytes // len(array) if len(array) else record_bytes
        if width != record_bytes:
            raise InvalidArgument(f"the records have {width} bytes each, but those of this shuffle {record_bytes}")
        return array.reshape(len(array), -1).view(np.uint8).reshape(-1), record_bytes, None, 0, len(array)
    import pyarrow as pa

    column = records if isinstance(records, pa.Array) else pa.array(records, pa.large_binary())
    if not _offset_bytes(column.type) and not (
        pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)
    ):
        raise UnsupportedType(f"records must be an Arrow array of bytes or text, not of {column.type}")
    if column.null_count:
        raise InvalidArgument("a record is null: fill_null(b'') makes it empty")
    return (*key_buffers(column), len(column)) if len(column) else (b"", 0, bytes(8), 8, 0)
