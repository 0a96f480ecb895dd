"""Tables and arrays as HDF5 files, by h5py.

An array is the dataset ``data`` at the root. A table is one dataset of one dimension for each column, in the order of
the columns: numbers, booleans, and text as UTF-8. HDF5 has no missing values and no types for dates, so a table with
either is refused rather than changed.
"""

from __future__ import annotations

import io
from typing import Any

from entrepot.errors import UnsupportedType

_KIND = "entrepot.kind"  # attribute of the root: "table" or "array"
_ARRAY = "data"


def encode_array(value: Any) -> memoryview:
    """A file with one array.

    Raises:
        UnsupportedType: HDF5 has no type for its elements.
    """
    h5py = _h5py()
    return _written(h5py, "array", {_ARRAY: value})


def encode_table(table: Any) -> memoryview:
    """A file with one dataset for each column of an Arrow table.

    Raises:
        UnsupportedType: a column has missing values, or a type that HDF5 does not have.
    """
    h5py = _h5py()
    names = table.column_names
    if len(set(names)) != len(names) or any(not name or "/" in name or name == "." for name in names):
        raise UnsupportedType(
            f"the columns {names!r} cannot be datasets of an HDF5 file, whose names are distinct and without slashes: "
            "rename them, or use another format"
        )
    return _written(h5py, "table", {name: _elements(h5py, name, table[name]) for name in names})


def decode(data: Any) -> Any:
    """The value of a file: a NumPy array, or an Arrow table.

    A file from elsewhere is an array if it has one dataset, and a table if it has several of one dimension and of one
    length.

    Raises:
        UnsupportedType: it is neither.
    """
    h5py = _h5py()
    import pyarrow as pa

    with h5py.File(io.BytesIO(data), "r", track_order=True) as file:
        datasets = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        others = sorted(set(file) - set(datasets))
        kind = file.attrs.get(_KIND, "array" if len(datasets) == 1 else "table")
        lengths = {item.shape for item in datasets.values()}
        if others or (kind == "array" and len(datasets) != 1):
            raise UnsupportedType(f"the HDF5 file holds {sorted(file)}, not one array or the columns of a table")
        if kind == "array":
            return next(iter(datasets.values()))[()]
        if len(lengths) > 1 or any(shape is None or len(shape) != 1 for shape in lengths):
            raise UnsupportedType(f"the datasets of the HDF5 file are no columns: their shapes are {sorted(lengths)}")
        return pa.table({name: _column(h5py, item) for name, item in datasets.items()})


def _elements(h5py: Any, name: str, column: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise UnsupportedType(
            f"column {name!r} has {column.null_count} missing values, which HDF5 cannot represent: fill them, or use "
            "another format"
        )
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return np.asarray(column.to_pylist(), dtype=h5py.string_dtype("utf-8"))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column.to_numpy()
    raise UnsupportedType(f"column {name!r} is {kind}, for which HDF5 has no type: cast it, or use another format")


def _column(h5py: Any, dataset: Any) -> Any:
    import pyarrow as pa

    text = h5py.check_string_dtype(dataset.dtype)
    return pa.array(dataset.asstr()[()], pa.string()) if text is not None else pa.array(dataset[()])


def _written(h5py: Any, kind: str, datasets: dict[str, Any]) -> memoryview:
    sink = io.BytesIO()
    with h5py.File(sink, "w", track_order=True) as file:
        file.attrs[_KIND] = kind
        for name, elements in datasets.items():
            try:
                file.create_dataset(name, data=elements)
            except TypeError as error:
                raise UnsupportedType(
                    f"HDF5 has no type for elements of type {elements.dtype}: use another format"
                ) from error
    return sink.getbuffer()


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "HDF5 files need the package h5py: pip install 'entrepot[hdf5]', or use another format"
        ) from error
    return h5py
