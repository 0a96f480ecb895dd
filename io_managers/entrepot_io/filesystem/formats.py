"""File formats in which stored tables and arrays can be read: ``.arrow``, ``.feather``, ``.parquet``, ``.csv``,
``.orc``, ``.npy``, ``.h5``.

A table ``orders`` can be read as ``orders.parquet``, for example, although only the table is stored. The bytes are made
when they are asked for.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from entrepot_io.filesystem import hdf5

BYTE_TYPES = frozenset({"python.bytes", "python.bytearray", "python.memoryview", "entrepot.blob"})
_TABLE_TYPES = frozenset({"arrow.table", "arrow.record_batch", "pandas.DataFrame", "polars.DataFrame"})
_ARRAY_TYPES = frozenset({"numpy.ndarray"})


@dataclass(frozen=True, slots=True)
class Format:
    """A file format.

    Attributes:
        suffix: of the files' names.
        types: codecs of the objects that can be read in this format.
        encode: returns a value's bytes.
        decode: returns the value of bytes: a ``pyarrow.Table`` or an array.
    """

    suffix: str
    types: frozenset[str]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def split(name: str) -> tuple[str, Format | None]:
    """A name without the suffix of a format, and that format; the whole name and None if it has no such suffix.

    >>> stem, file_format = split("a/orders.parquet")
    >>> stem, file_format.suffix
    ('a/orders', '.parquet')
    >>> split("orders.txt")
    ('orders.txt', None)
    """
    stem, dot, extension = name.rpartition(".")
    suffixed = FORMATS.get(dot + extension)
    return (stem, suffixed) if suffixed is not None and stem and not stem.endswith("/") else (name, None)


def suffixes_of(type_name: str) -> list[str]:
    """The suffixes with which an object of this type can be read; empty for bytes and for other values."""
    return [suffix for suffix, candidate in FORMATS.items() if type_name in candidate.types]


def to_table(value: Any) -> Any:
    """An Arrow table of a table of any class."""
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if type(value).__module__.partition(".")[0] == "polars":
        return value.to_arrow()
    return pa.Table.from_pandas(value)


def _to_ipc(value: Any) -> Any:
    import pyarrow as pa

    table = to_table(value)
    measured = pa.MockOutputStream()  # counts the bytes, so that the columns are copied once, into the right place
    _write_ipc(table, measured)
    buffer = pa.allocate_buffer(measured.size())
    _write_ipc(table, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write_ipc(table: Any, sink: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _from_ipc(data: Any) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.py_buffer(data)).read_all()


def _to_parquet(value: Any) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(to_table(value), sink)
    return sink.getvalue()


def _from_parquet(data: Any) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(pa.py_buffer(data)))


def _to_csv(value: Any) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    csv.write_csv(to_table(value), sink)
    return sink.getvalue()


def _from_csv(data: Any) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(pa.BufferReader(pa.py_buffer(data)))


def _to_orc(value: Any) -> Any:
    import pyarrow as pa
    from pyarrow import orc

    sink = pa.BufferOutputStream()
    orc.write_table(to_table(value), sink)
    return sink.getvalue()


def _from_orc(data: Any) -> Any:
    import pyarrow as pa
    from pyarrow import orc

    return orc.read_table(pa.BufferReader(pa.py_buffer(data)))


def _to_hdf5(value: Any) -> Any:
    import numpy as np

    return hdf5.encode_array(value) if isinstance(value, np.ndarray) else hdf5.encode_table(to_table(value))


def _to_npy(value: Any) -> Any:
    import numpy as np

    sink = io.BytesIO()
    np.save(sink, value, allow_pickle=False)
    return sink.getbuffer()


def _from_npy(data: Any) -> Any:
    import numpy as np

    return np.load(io.BytesIO(data), allow_pickle=False)


FORMATS = {
    file_format.suffix: file_format
    for file_format in (
        Format(".arrow", _TABLE_TYPES, _to_ipc, _from_ipc),
        Format(".feather", _TABLE_TYPES, _to_ipc, _from_ipc),
        Format(".parquet", _TABLE_TYPES, _to_parquet, _from_parquet),
        Format(".csv", _TABLE_TYPES, _to_csv, _from_csv),
        Format(".orc", _TABLE_TYPES, _to_orc, _from_orc),
        Format(".npy", _ARRAY_TYPES, _to_npy, _from_npy),
        Format(".h5", _TABLE_TYPES | _ARRAY_TYPES, _to_hdf5, hdf5.decode),
    )
}
