"""Stored tables and arrays in the form that a reader asks for, without a copy where the libraries can do without.

    value as stored --> Arrow (tables), or NumPy (arrays) --> what is asked for

A reader names what it wants by its class (a type annotation) or by a word of a configuration file. What is that already
is returned as it is, also an instance of a subclass, such as NumPy's masked arrays. Libraries are imported only if they
are asked for, or have made the value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from entrepot.errors import EntrepotError, InvalidArgument, UnsupportedType
from entrepot.library_errors import is_library_error

from entrepot_io.type_info import type_name

# Public class by the word for it in a configuration file.
FORMS = {
    "pandas": "pandas.DataFrame",
    "polars": "polars.DataFrame",
    "polars.lazy": "polars.LazyFrame",
    "arrow": "pyarrow.Table",
    "arrow.reader": "pyarrow.RecordBatchReader",
    "numpy": "numpy.ndarray",
}


# Forms that are read when they are used, with the form in memory that they are made of.
READ_LATER = {"polars.LazyFrame": "polars.DataFrame", "pyarrow.RecordBatchReader": "pyarrow.Table"}
COLLECTION = "entrepot.Collection"


def form_of(annotation: Any) -> str | None:
    """The public name of a class that values can be converted to, such as ``"polars.LazyFrame"``.

    Args:
        annotation: a class, or anything else.

    Returns:
        None: it is none of these.
    """
    if not isinstance(annotation, type):
        return None
    root = annotation.__module__.partition(".")[0]
    name = f"{root}.{annotation.__qualname__}"
    is_public = getattr(sys.modules.get(root), annotation.__qualname__, None) is annotation
    return name if is_public and name in _CONVERSIONS else None


def kind_of(value: Any) -> str:
    """The public name of the class that a value is treated as: of a subclass of one that is known here, that one."""
    name = type_name(value)
    if name in _KINDS:
        return name
    for cls in type(value).__mro__[1:]:
        root = cls.__module__.partition(".")[0]
        base = f"{root}.{cls.__qualname__}"
        if base in _KINDS and getattr(sys.modules.get(root), cls.__qualname__, None) is cls:
            return base
    return name


def convert(value: Any, form: str, *, columns: Sequence[str | int] | None = None) -> Any:
    """A stored value in the form that a reader asks for.

    Numbers without nulls, and Arrow's memory between Arrow and Polars, are not copied; pandas gets strings as Arrow has
    them. A collection of tables is one table, whose chunks are its members; lazy frames and readers read members when
    they are used.

    Args:
        value: as stored: a table of pandas, Polars or Arrow, an array, or a collection.
        form: what is asked for: a public class, or one of the words in :data:`FORMS`.
        columns: of a table; default: all.

    Raises:
        InvalidArgument: there is no such form, or no such column, or columns of something that is not a table.
        UnsupportedType: a value of this type has no such form.
    """
    target = FORMS.get(form, form)
    conversion = _CONVERSIONS.get(target)
    if conversion is None:
        raise InvalidArgument(f"there is no form {form!r}, only {', '.join((*FORMS, *_CONVERSIONS))}")
    if columns is not None:
        value = select(value, columns)
    if kind_of(value) == target:
        return value
    try:
        return conversion(value)
    except EntrepotError:
        raise
    except BaseException as error:  # as libraries refuse columns that they do not have, each in its own way
        if isinstance(error, (ImportError, MemoryError, OSError)) or not is_library_error(error):
            raise
        raise UnsupportedType(f"this {kind_of(value)} cannot be read as {target}: {error}") from error


def select(value: Any, columns: Sequence[str | int]) -> Any:
    """A table with some of its columns, in the given order, in the form that it has.

    Args:
        value: the table.
        columns: their names; integers, which only pandas has as labels, are labels, not positions.

    Raises:
        InvalidArgument: a column does not exist, or the value is no table.
    """
    names = list(columns)
    kind = kind_of(value)
    if kind == "pyarrow.RecordBatchReader":
        raise InvalidArgument(_readable_once(f"has no columns to choose, but columns={names} were asked for"))
    if not _is_table(value, kind):
        raise InvalidArgument(f"columns={names} were asked for, and a {kind} is not a table")
    present = _column_names(value, kind)
    if missing := [name for name in names if name not in present]:
        raise InvalidArgument(f"the table has no column {missing[0]!r}, only {', '.join(map(repr, present))}")
    if kind == "pandas.DataFrame":
        return value[names]
    if kind == COLLECTION:
        return _arrow(value).select(names)
    return value.select(names)


def _readable_once(problem: str) -> str:
    return (
        f"a pyarrow.RecordBatchReader {problem}: it is not a table, and only the first of its readers would get the "
        "rows; pass on its table (reader.read_all()), or store it as one (in Kedro, save_args: {as: arrow})"
    )


def computed(value: Any) -> Any:
    """The rows of a lazy frame or a reader, as a table; any other value is returned as it is."""
    kind = kind_of(value)
    if kind == "polars.LazyFrame":
        return value.collect()
    return value.read_all() if kind == "pyarrow.RecordBatchReader" else value


def is_table(value: Any) -> bool:
    """Return whether a value has columns that can be chosen from."""
    return _is_table(value, kind_of(value))


def _is_table(value: Any, kind: str) -> bool:
    if kind == COLLECTION:
        return value.rows is not None and value.row_shape is None
    return kind in ("pandas.DataFrame", "polars.DataFrame", "polars.LazyFrame", "pyarrow.Table", "pyarrow.RecordBatch")


def _column_names(value: Any, kind: str) -> list[Any]:
    if kind in ("pyarrow.Table", "pyarrow.RecordBatch", COLLECTION):
        return list(value.schema.names)
    return list(value.collect_schema().names() if kind == "polars.LazyFrame" else value.columns)


def _arrow(value: Any) -> Any:
    """As a ``pyarrow.Table``."""
    import pyarrow as pa

    kind = kind_of(value)
    if not _is_table(value, kind):
        raise _unsupported(value, "pyarrow.Table")
    if kind == "pyarrow.Table":
        return value
    if kind == "pandas.DataFrame":
        return pa.Table.from_pandas(value)
    if kind == "pyarrow.RecordBatch":
        return pa.Table.from_batches([value])
    if kind == COLLECTION:
        return value.to_arrow()
    return _arrow_of_polars(value.collect() if kind == "polars.LazyFrame" else value)


def _arrow_of_polars(frame: Any) -> Any:
    import polars as pl

    for name, dtype in frame.schema.items():
        if dtype == pl.Object:  # Polars would give Arrow their addresses, as bytes
            raise UnsupportedType(
                f"this polars.DataFrame cannot be read in another form: its column {name!r} has Python objects: ask "
                "for it as it was stored, or for other columns"
            )
    return frame.to_arrow()


def _reader(value: Any) -> Any:
    """As a ``pyarrow.RecordBatchReader``."""
    if kind_of(value) == COLLECTION and _is_table(value, COLLECTION):
        return value.to_reader()
    return _arrow(value).to_reader()


def _polars(value: Any) -> Any:
    """As a ``polars.DataFrame``."""
    import polars as pl

    kind = kind_of(value)
    if kind == "pandas.DataFrame":
        return pl.from_pandas(value)
    if kind == "polars.LazyFrame":
        return value.collect()
    if not _is_table(value, kind):
        raise _unsupported(value, "polars.DataFrame")
    return pl.from_arrow(_arrow(value), rechunk=False)


def _polars_lazy(value: Any) -> Any:
    """As a ``polars.LazyFrame``."""
    kind = kind_of(value)
    if kind == COLLECTION and _is_table(value, kind):
        return value.scan_polars()
    return (value if kind == "polars.DataFrame" else _polars(value)).lazy()


def _pandas(value: Any) -> Any:
    """As a ``pandas.DataFrame``."""
    if not _is_table(value, kind_of(value)):
        raise _unsupported(value, "pandas.DataFrame")
    return pandas_of(_arrow(value))


def pandas_of(table: Any) -> Any:
    """An Arrow table as a pandas frame: numbers without nulls are views, strings stay Arrow's.

    Columns of an extension type that pandas has no dtype for are what they are stored as: of a tensor in each row, the
    row has its numbers, as an array of one dimension.
    """
    import pandas as pd
    import pyarrow as pa

    strings = pd.StringDtype("pyarrow")
    types = {pa.string(): strings, pa.large_string(): strings}
    if hasattr(pa, "string_view"):
        types[pa.string_view()] = strings
    for position, field in enumerate(table.schema):
        if _lacks_dtype(field.type):  # of which pyarrow makes no blocks of their own
            table = table.set_column(position, field.name, _storage(table.column(position)))
    return table.to_pandas(types_mapper=types.get, split_blocks=True)


def _lacks_dtype(type_: Any) -> bool:
    """Whether it is an extension type that is neither one of pandas nor one whose values Arrow makes objects of."""
    import pyarrow as pa

    if not isinstance(type_, pa.BaseExtensionType) or isinstance(type_, getattr(pa, "UuidType", ())):
        return False
    try:
        return not hasattr(type_.to_pandas_dtype(), "__from_arrow__")
    except NotImplementedError:
        return True


def _storage(column: Any) -> Any:
    """A column of an extension type as the type that it is stored as."""
    import pyarrow as pa

    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _numpy(value: Any) -> Any:
    """As a ``numpy.ndarray``."""
    kind = kind_of(value)
    if kind == "polars.LazyFrame":
        return value.collect().to_numpy()
    if kind in ("pandas.DataFrame", "pandas.Series", "polars.DataFrame", "polars.Series", "torch.Tensor"):
        return value.numpy() if kind == "torch.Tensor" else value.to_numpy()
    if kind == "pyarrow.Table":
        return pandas_of(value).to_numpy()
    if kind == "pyarrow.ChunkedArray" or (kind.startswith("pyarrow.") and hasattr(value, "to_numpy")):
        return value.to_numpy() if kind == "pyarrow.ChunkedArray" else value.to_numpy(zero_copy_only=False)
    if hasattr(type(value), "__dlpack__"):
        import numpy as np

        return np.from_dlpack(value)
    raise _unsupported(value, "numpy.ndarray")


def _unsupported(value: Any, target: str) -> UnsupportedType:
    kind = kind_of(value)
    if kind == "pyarrow.RecordBatchReader":
        return UnsupportedType(_readable_once(f"cannot be read as {target}"))
    is_array = kind in ("pandas.Series", "polars.Series", "pyarrow.ChunkedArray") or hasattr(type(value), "__dlpack__")
    forms = list(_CONVERSIONS) if _is_table(value, kind) else ["numpy.ndarray"] if is_array else []
    others = [name for name in forms if name != target]
    if not others:
        advice = "ask for it as it was stored"
    else:
        advice = f"ask for it as it was stored, or as {' or '.join(others)}"
    return UnsupportedType(f"a {kind} cannot be read as {target}: {advice}")


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "polars.LazyFrame": _polars_lazy,
    "pyarrow.Table": _arrow,
    "pyarrow.RecordBatchReader": _reader,
    "numpy.ndarray": _numpy,
}
_KINDS = frozenset({*_CONVERSIONS, COLLECTION, "pyarrow.RecordBatch", "pandas.Series", "polars.Series"})
