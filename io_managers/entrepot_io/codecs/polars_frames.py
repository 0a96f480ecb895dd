"""Polars DataFrames and Series, through Arrow in Polars' own layout: no column is copied or re-encoded.

Polars exports its columns to Arrow unchanged (text as views, ``Categorical`` as dictionaries, with their settings in
the field's metadata) and imports them the same way. It would copy the codes of an ``Enum`` in both directions, and
repeat the categories in the metadata, so large columns of that type are stored as their codes, with the categories
beside them. 128-bit integers, which Arrow lacks, and columns of Python objects are stored as lists. Values that would
not be restored with the same dtype are left to pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
from entrepot.codec import Decoder, Encoder, NeverPickled, Node
from entrepot.errors import CorruptData, UnsupportedType

from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields, size, sizes, too_old

# dtypes stored as lists, by their stored name.
_KNOWN_LISTS = ("Int128", "UInt128", "Object")
_AS_LISTS: dict[str, Any] = {name: getattr(pl, name) for name in _KNOWN_LISTS if hasattr(pl, name)}
# Enum columns with fewer rows and categories are stored as Arrow dictionaries, whose conversion takes less time than
# getting at the codes.
_CODES_ROWS = 1 << 18
_CODES_CATEGORIES = 1 << 10
_ASCENDING, _DESCENDING = 1, 2
_ENUM_KEY = b"_PL_ENUM_VALUES"  # in the metadata of a field; Polars 2 appends a number
_HAS_HALVES = hasattr(pl, "Float16")
# A panic of Polars' engine derives from BaseException; it must not be mistaken for an exit of the program.
_PANIC: Any = getattr(pl.exceptions, "PanicException", pl.exceptions.PolarsError)


class DataFrameCodec(CheckedCodec):
    """``polars.DataFrame``.

    params: [rows, columns stored as lists as [position, name, dtype], sorted columns as [position, direction],
    positions of the ``Enum`` columns that are codes in the table]; children: the Arrow table of the columns that are
    not lists, the lists, the categories of each of these columns. Version 1 lacks the last of the params, and is still
    written for frames without such columns.
    """

    name = "polars.DataFrame"
    version = 2

    def encode(self, value: Any, encoder: Encoder) -> Node:
        frame: pl.DataFrame = value
        columns, dtypes = frame.get_columns(), frame.dtypes
        lists = [
            (position, columns[position], name)
            for position, dtype in enumerate(dtypes)
            for name, kind in _AS_LISTS.items()
            if dtype == kind
        ]
        names = {column.name for _, column, _ in lists}
        rest = frame.select([name for name in frame.columns if name not in names]) if names else frame
        enums = [
            (position, columns[position])
            for position, dtype in enumerate(dtypes)
            if isinstance(dtype, pl.Enum)
            and (frame.height >= _CODES_ROWS or len(dtype.categories) >= _CODES_CATEGORIES)
        ]
        if enums:
            rest = rest.clone()
            for _, column in enums:
                rest.replace_column(rest.get_column_index(column.name), column.to_physical())
        children = [_encode_table(rest, encoder), *(encoder.encode(column.to_list()) for _, column, _ in lists)]
        children += [encoder.encode(_categories(column)) for _, column in enums]
        described = [[position, column.name, name] for position, column, name in lists]
        params: list[Any] = [frame.height, described, _sorted_columns(frame)]
        if not enums:
            return Node(self.name, 1, params, children=children)
        return Node(self.name, self.version, [*params, [position for position, _ in enums]], children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        raw_rows, lists, in_order, *later = fields(node, 3 if node.version == 1 else 4)
        enums = sizes(node, later[0]) if later else []
        rows = size(node, raw_rows)
        table = decoder.decode(child(node, 0))
        if not isinstance(table, pa.Table):
            raise damaged(node, f"expected an Arrow table, found {type(table).__name__}")
        contents = [decoder.decode(child(node, 1 + number)) for number in range(len(lists) + len(enums))]
        for _, _, dtype in lists:
            if dtype in _KNOWN_LISTS and dtype not in _AS_LISTS:
                raise too_old(node, f"the dtype {dtype}", pl)
        try:
            frame = self._assemble(node, table, lists, contents[: len(lists)])
            for position, categories in zip(enums, contents[len(lists) :], strict=True):
                if not isinstance(categories, pa.Array):
                    raise damaged(node, "the categories of a column are not an Arrow array")
                frame.replace_column(position, _to_enum(frame.to_series(position), categories))
            for position, direction in in_order:
                column = frame.to_series(position)
                frame = frame.with_columns(column.set_sorted(descending=direction == _DESCENDING))
        except _PANIC as panic:
            raise damaged(node, f"Polars rejects it: {panic}") from panic
        if frame.height != rows:
            raise damaged(node, f"it has {frame.height} rows, expected {rows}")
        return frame

    def _assemble(self, node: Node, table: pa.Table, lists: list[Any], contents: list[Any]) -> pl.DataFrame:
        if not table.num_columns and not lists:
            rows = node.params[0]
            return pl.DataFrame(height=rows) if rows else pl.DataFrame()
        with_dictionaries = []
        for position, column in enumerate(table.columns):
            # While importing, Polars trusts the codes and the strings of categories.
            if _has(pa.types.is_dictionary, column.type):
                column.validate(full=True)
                with_dictionaries.append(position)
        if not _HAS_HALVES and any(_has(pa.types.is_float16, column.type) for column in table.columns):
            raise too_old(node, "the dtype Float16", pl)  # older releases read other numbers
        frame = _from_arrow(table) if table.num_columns else pl.DataFrame()
        for position in with_dictionaries:
            _keep_enum(node, frame, position, table.schema.field(position))
        if not lists:
            return frame
        columns = frame.get_columns()
        for (position, name, dtype), content in zip(lists, contents, strict=True):
            columns.insert(position, pl.Series(name, content, dtype=_AS_LISTS[dtype]))
        names = [column.name for column in columns]
        frame = pl.DataFrame(columns)
        if frame.columns != names:  # an empty name was replaced
            frame.columns = names
        return frame


class SeriesCodec(CheckedCodec):
    """``polars.Series``: a DataFrame of one column."""

    name = "polars.Series"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(
            self.name,
            self.version,
            children=[encoder.registry.by_name("polars.DataFrame").encode(value.to_frame(), encoder)],
        )

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        frame = decoder.decode(child(node, 0))
        if not isinstance(frame, pl.DataFrame) or frame.width != 1:
            raise damaged(node, "its child is not a frame of one column")
        return frame.to_series(0)


class LazyFrameCodec(CheckedCodec):
    """``polars.LazyFrame``: a query plan, not data. It is never encoded, only pickled where that is allowed."""

    name = "polars.LazyFrame"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        raise UnsupportedType(
            "a polars.LazyFrame is a query plan, not data: call collect() and put the DataFrame, "
            "or allow pickling to store the plan itself"
        )

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        raise damaged(node, "a LazyFrame is never stored under this codec")


def _categories(column: pl.Series) -> pa.Array:
    dtype: Any = column.dtype
    categories: pl.Series = dtype.categories
    return categories.to_arrow(compat_level=pl.CompatLevel.newest())


def _to_enum(codes: pl.Series, categories: pa.Array) -> pl.Series:
    """The column with these codes, each of which is checked; without a copy since Polars 2."""
    names: Any = pl.from_arrow(categories)
    dtype = pl.Enum(names)
    try:
        return codes.cat.to(dtype)
    except (AttributeError, pl.exceptions.PolarsError):  # an older Polars, or one with codes of another width
        enum: pl.Series = names.gather(codes).cast(dtype).alias(codes.name)
        return enum


def _keep_enum(node: Node, frame: pl.DataFrame, position: int, field: pa.Field) -> None:
    """Restore an ``Enum`` that this Polars imported as ``Categorical``, as releases before 2 do with a later one's.

    Raises:
        VersionMismatch: it is nested in another column.
    """
    column = frame.to_series(position)
    if len(_enums(field)) == _count_enums(column.dtype):
        return
    if not pa.types.is_dictionary(field.type):
        raise too_old(node, "an Enum nested in another column, in the form of a later release", pl)
    rest, names = _enums(field)[0], []
    while rest:
        length, _, rest = rest.partition(b";")
        names.append(rest[: int(length)].decode())
        rest = rest[int(length) :]
    frame.replace_column(position, column.cast(pl.String).cast(pl.Enum(names)))


def _enums(field: pa.Field) -> list[bytes]:
    """The categories of each ``Enum`` in a column, as Polars writes them into the metadata: length, semicolon, text."""
    metadata: dict[bytes, bytes] = field.metadata or {}
    categories = [value for key, value in metadata.items() if key.startswith(_ENUM_KEY)]
    for index in range(field.type.num_fields):
        categories += _enums(field.type.field(index))
    return categories


def _count_enums(dtype: Any) -> int:
    if isinstance(dtype, pl.Struct):
        return sum(_count_enums(field.dtype) for field in dtype.fields)
    if isinstance(dtype, (pl.List, pl.Array)):
        return _count_enums(dtype.inner)
    return int(isinstance(dtype, pl.Enum))


def _encode_table(frame: pl.DataFrame, encoder: Encoder) -> Node:
    """Encode the columns as an Arrow table.

    Polars releases before 2 export slices of nested columns with children that are too short. Reading them back detects
    that, and a fresh copy of the columns is free of it.
    """
    # Not encoder.encode: if the table is unsuitable, it is the DataFrame that must be pickled.
    codec = encoder.registry.by_name("arrow.table")
    if not any(dtype.is_nested() for dtype in frame.schema.values()):
        return codec.encode(_to_arrow(frame), encoder)
    try:
        return _encode_checked(frame, encoder)
    except UnsupportedType:
        return _encode_checked(frame.select(pl.all().gather(pl.int_range(pl.len()))), encoder)


def _encode_checked(frame: pl.DataFrame, encoder: Encoder) -> Node:
    codec = encoder.registry.by_name("arrow.table")
    node = codec.encode(_to_arrow(frame), encoder)
    try:
        codec.decode(node, Decoder(encoder.registry, encoder.buffers.__getitem__, len(encoder.buffers)))
    except CorruptData as error:
        raise UnsupportedType(
            f"this release of Polars exports damaged nested columns ({error}): upgrade it, or allow pickling"
        ) from error
    return node


def _to_arrow(frame: pl.DataFrame) -> pa.Table:
    """The frame's own buffers as an Arrow table, checked to be restored with the same dtypes."""
    if empty := [name for name, dtype in frame.schema.items() if _has_empty_arrays(dtype)]:
        raise NeverPickled(
            f"the column {empty[0]!r} has the dtype {frame.schema[empty[0]]}, an Array of no elements, which Polars "
            "reads neither from Arrow nor from a pickle: cast it to a List, or drop it"
        )
    try:
        table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
        same = not table.num_columns or _from_arrow(table.slice(0, 0)).schema == frame.schema
    except (pa.ArrowException, pl.exceptions.PolarsError, _PANIC) as error:
        raise UnsupportedType(
            f"Arrow cannot represent the columns {dict(frame.schema)} ({error}): cast them, or allow pickling"
        ) from error
    if not same:
        raise UnsupportedType(
            f"the columns {dict(frame.schema)} would not be restored from Arrow with the same dtypes: "
            "cast them, or allow pickling"
        )
    return table


def _has_empty_arrays(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_empty_arrays(each.dtype) for each in dtype.fields)
    if isinstance(dtype, pl.Array):
        return 0 in dtype.shape or _has_empty_arrays(dtype.inner)
    return isinstance(dtype, pl.List) and _has_empty_arrays(dtype.inner)


def _has(kind: Callable[[Any], bool], type_: Any) -> bool:
    """Whether the type, or one nested in it, is of a kind."""
    return kind(type_) or any(_has(kind, type_.field(index).type) for index in range(type_.num_fields))


def _from_arrow(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    # Columns with an empty name are renamed on import, and a single column is imported as a Series.
    if isinstance(frame, pl.Series):
        frame = frame.to_frame()
    if frame.columns != table.column_names:
        frame.columns = table.column_names
    return frame


def _sorted_columns(frame: pl.DataFrame) -> list[list[int]]:
    columns = []
    for position, flags in enumerate(frame.flags.values()):
        if flags.get("SORTED_ASC"):
            columns.append([position, _ASCENDING])
        elif flags.get("SORTED_DESC"):
            columns.append([position, _DESCENDING])
    return columns
