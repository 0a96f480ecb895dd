"""Tables and arrays as files of a checkpoint: the classes that can be restored, and whether a format restores them.

Parquet is written and read by each class's own library. The other formats are those of ``entrepot://``.
"""

from __future__ import annotations

import io
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, UnsupportedType
from entrepot_io.filesystem.formats import FORMATS, to_table

from entrepot_checkpoints.manifests.manifest import FileFormat

ARROW, PANDAS, POLARS, NUMPY = "pyarrow.Table", "pandas.DataFrame", "polars.DataFrame", "numpy.ndarray"
_KINDS = {
    ("pyarrow.lib", "Table"): ARROW,
    ("pandas", "DataFrame"): PANDAS,
    ("pandas.core.frame", "DataFrame"): PANDAS,
    ("polars.dataframe.frame", "DataFrame"): POLARS,
    ("numpy", "ndarray"): NUMPY,
}
FILE_FORMATS: tuple[FileFormat, ...] = ("parquet", "arrow", "csv", "orc", "npy", "h5")
_WHOLE = frozenset({"csv", "h5"})  # whether these can hold a value depends on all of its rows
_KEEP_SCHEMA_METADATA = frozenset({"parquet", "arrow"})  # where pandas finds its index again
ADVICE = "save it with format='entrepot'"


def kind_of(value: Any, file_format: FileFormat, what: str) -> str:
    """The class of a value, as a manifest records it.

    Raises:
        UnsupportedType: the format has no files for values of this class.
    """
    kind = _KINDS.get((type(value).__module__, type(value).__qualname__))
    wanted = ["arrays (NumPy)"] if file_format == "npy" else ["tables (Arrow, pandas, Polars)"]
    if file_format == "h5":
        wanted.append("arrays (NumPy)")
    fits = file_format in ("npy", "h5") if kind == NUMPY else kind is not None and file_format != "npy"
    if kind is None or not fits:
        raise UnsupportedType(
            f"{what} is a {type(value).__module__}.{type(value).__qualname__}, but only {' and '.join(wanted)} can be "
            f"written as {_title(file_format)}: {ADVICE}"
        )
    return kind


def check(value: Any, kind: str, file_format: FileFormat, what: str) -> None:
    """Check whether a format restores a value: by its first row if that decides it, else by all of it.

    Raises:
        UnsupportedType: it does not.
    """
    sample = value
    if kind == NUMPY:
        sample = value[:1] if value.ndim else value
    elif file_format not in _WHOLE:
        sample = value.slice(0, 1) if kind == ARROW else value.head(1)
    try:
        buffer = io.BytesIO()
        write(sample, kind, file_format, buffer)
        restored = read(buffer.getvalue(), kind, file_format, "the trial")
    except EntrepotError as error:
        raise UnsupportedType(f"{what} cannot be written as {_title(file_format)}: {error}: {ADVICE}") from error
    except ImportError:
        raise
    except Exception as error:  # each library has its own errors for what a format cannot hold
        raise UnsupportedType(f"{what} cannot be written as {_title(file_format)}: {error}: {ADVICE}") from error
    before, after = _types(sample, kind), _types(restored, kind)
    if before != after:
        raise UnsupportedType(
            f"{what} would change when restored from {_title(file_format)}: {before} becomes {after}: {ADVICE}"
        )
    if file_format == "csv" and not restored.equals(value):
        raise UnsupportedType(
            f"{what} would change when restored from CSV, which does not tell missing values from empty text and has "
            f"no exact numbers: {ADVICE}"
        )
    if kind == PANDAS and file_format not in _KEEP_SCHEMA_METADATA and not _has_plain_index(value):
        raise UnsupportedType(
            f"{what} would lose its index when restored from {_title(file_format)}: reset it (reset_index), or {ADVICE}"
        )


def write(value: Any, kind: str, file_format: FileFormat, file: Any) -> None:
    """Write a value's file."""
    if file_format != "parquet":
        file.write(FORMATS[f".{file_format}"].encode(value if kind == NUMPY else to_table(value)))
    elif kind == POLARS:
        value.write_parquet(file)
    elif kind == PANDAS:
        value.to_parquet(file, engine="pyarrow")
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(value, file)


def read(data: bytes, kind: str, file_format: FileFormat, url: str) -> Any:
    """Read a value of a class from its file's bytes.

    Raises:
        CorruptData: the manifest records a class that there is not.
    """
    if kind not in _KINDS.values() or (kind == NUMPY and file_format == "parquet"):
        raise CorruptData(f"{url} is recorded as a {kind}, which is not a supported type")
    if file_format != "parquet":
        return _as_kind(FORMATS[f".{file_format}"].decode(data), kind)
    if kind == POLARS:
        import polars

        return polars.read_parquet(io.BytesIO(data))
    if kind == PANDAS:
        import pandas

        return pandas.read_parquet(io.BytesIO(data), engine="pyarrow")
    import pyarrow
    import pyarrow.parquet

    return pyarrow.parquet.read_table(pyarrow.BufferReader(data))


def format_of(name: str, url: str) -> FileFormat:
    """The format of a file of a checkpoint, by its name.

    Raises:
        CorruptData: it has none.
    """
    suffix = name.rpartition(".")[2]
    for file_format in FILE_FORMATS:
        if suffix == file_format:
            return file_format
    raise CorruptData(f"{url} has no suffix of a file format")


def _as_kind(value: Any, kind: str) -> Any:
    if kind == POLARS:
        import polars

        return polars.from_arrow(value)
    return value.to_pandas() if kind == PANDAS else value


def _types(value: Any, kind: str) -> Any:
    if kind == NUMPY:
        return value.dtype, value.shape
    if kind == ARROW:
        return value.schema.remove_metadata()
    if kind == POLARS:
        return dict(value.schema)
    return [
        list(value.columns),
        [str(dtype) for dtype in value.dtypes],
        str(value.index.dtype),
        list(value.index.names),
    ]


def _has_plain_index(frame: Any) -> bool:
    import pandas

    index = frame.index
    return isinstance(index, pandas.RangeIndex) and (index.start, index.step, index.name) == (0, 1, None)


def _title(file_format: FileFormat) -> str:
    return {"parquet": "Parquet", "h5": "HDF5", "arrow": "an Arrow file"}.get(file_format, file_format.upper())
