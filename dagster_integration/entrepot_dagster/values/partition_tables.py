"""One table for several partitions: which rows are which partition's.

Steps that write to a database return one table for all partitions of their run, and name the column that tells them
apart: ``metadata={"partition_expr": "day"}``. In the store, each partition is a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import MultiPartitionKey, MultiPartitionsDefinition, TimeWindowPartitionsDefinition
from entrepot.errors import InvalidArgument
from entrepot.library_errors import is_library_error
from entrepot_io.conversions import kind_of

if TYPE_CHECKING:
    from dagster import OutputContext, PartitionsDefinition, TimeWindow

PARTITION_EXPR = "partition_expr"
_LAZY_FRAME = "polars.LazyFrame"
TABLES = ("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table", _LAZY_FRAME)


def split_by_partition(context: OutputContext, obj: Any) -> Any:
    """Return an output with several partitions as a dictionary of them, if it is a table that says whose each row is.

    Tables whose rows are in the order of the partitions are cut without a copy.

    Args:
        context: of the output; its definition's metadata ``partition_expr`` is the name of a column or, of partitions
            with several dimensions, a mapping of each dimension to one.
        obj: what the step returned.

    Returns:
        ``obj`` as it is, if it has one partition, is no table, or has no such metadata.

    Raises:
        InvalidArgument: there is no such column, its type has no such partitions, or a row belongs to none of them.
    """
    if not (context.has_asset_key and context.has_asset_partitions) or kind_of(obj) not in TABLES:
        return obj
    keys = context.asset_partition_keys
    expression = (context.definition_metadata or {}).get(PARTITION_EXPR)
    if len(keys) < 2 or expression is None:
        return obj
    if kind_of(obj) == _LAZY_FRAME:  # whose result is in memory, for several writers
        return {key: frame.lazy() for key, frame in split_by_partition(context, obj.collect()).items()}
    import numpy as np

    asset = context.asset_key.to_user_string()
    codes = _codes(obj, keys, context.asset_partitions_def, expression, asset)
    if (codes < 0).any():
        row, count = int(np.argmax(codes < 0)), int((codes < 0).sum())
        others = f", and {count - 1} more" if count > 1 else ""
        raise InvalidArgument(
            f"row {row} of this output of {asset}{others}: by {PARTITION_EXPR} {expression!r}, it belongs to none of "
            f"the {len(keys)} partitions of this run"
        )
    order = None if (codes[1:] >= codes[:-1]).all() else np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
    begins = [0, *ends[:-1].tolist()]
    return {key: _rows(obj, order, begin, end) for key, begin, end in zip(keys, begins, ends.tolist(), strict=True)}


def _rows(table: Any, order: Any, begin: int, end: int) -> Any:
    """Rows of a table from one place to another, in the order that is given; None: in that of the table."""
    is_pandas = kind_of(table) == "pandas.DataFrame"
    if order is None:
        return table.iloc[begin:end] if is_pandas else table.slice(begin, end - begin)
    rows = order[begin:end]
    if is_pandas:
        return table.iloc[rows]
    return table.take(rows) if kind_of(table) == "pyarrow.Table" else table[rows]


def _codes(
    table: Any, keys: Sequence[str], definition: PartitionsDefinition[Any], expression: object, asset: str
) -> Any:
    """Of each row, the place of its partition among the keys; less than 0: none of them."""
    import numpy as np

    if not isinstance(definition, MultiPartitionsDefinition):
        return _codes_of_column(table, keys, definition, expression, asset)
    columns = expression if isinstance(expression, Mapping) else {}
    dimensions = [dimension.name for dimension in definition.partitions_defs]
    if set(columns) != set(dimensions):
        raise InvalidArgument(
            f"{PARTITION_EXPR} of {asset} must name a column for each of {', '.join(dimensions)}, not {expression!r}"
        )
    of_keys = [_dimensions(key, definition) for key in keys]
    places: Any = np.zeros(len(table), dtype=np.int64)
    of_places: Any = np.zeros(len(keys), dtype=np.int64)
    for dimension in definition.partitions_defs:
        own_keys = sorted({each[dimension.name] for each in of_keys})
        codes = _codes_of_column(table, own_keys, dimension.partitions_def, columns[dimension.name], asset)
        # One number for the places in all dimensions, as the digits of a number have different weights.
        places = np.where((places < 0) | (codes < 0), -1, places * len(own_keys) + codes)
        of_places = of_places * len(own_keys) + [own_keys.index(each[dimension.name]) for each in of_keys]
    order = np.argsort(of_places)
    nearest = order[np.searchsorted(of_places, places, sorter=order).clip(max=len(keys) - 1)]
    return np.where(of_places[nearest] == places, nearest, -1)


def _dimensions(key: str, definition: MultiPartitionsDefinition) -> Mapping[str, str]:
    """The key in each dimension."""
    own_key = key if isinstance(key, MultiPartitionKey) else definition.get_partition_key_from_str(key)
    return own_key.keys_by_dimension


def _codes_of_column(
    table: Any, keys: Sequence[str], definition: PartitionsDefinition[Any], column: object, asset: str
) -> Any:
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # whose functions have no types
    _check_column(table, column, asset)
    try:
        values = _column(table, column)
        if isinstance(definition, TimeWindowPartitionsDefinition):
            return _codes_in_windows(values, [definition.time_window_for_partition_key(key) for key in keys])
        codes = pc.index_in(pc.cast(values, pa.string()), value_set=pa.array(list(keys), pa.string()))
        return pc.fill_null(codes, -1).to_numpy(zero_copy_only=False)
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise InvalidArgument(
            f"{PARTITION_EXPR} of {asset} is the column {column!r}, whose values name no partitions of "
            f"{type(definition).__name__}: {error}"
        ) from error


def _codes_in_windows(values: Any, windows: Sequence[TimeWindow]) -> Any:
    """Of each time, the place of the window that has it. Times without a zone are those of the partitions' zone."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    has_zone = pa.types.is_timestamp(values.type) and values.type.tz is not None
    times = pc.cast(values, pa.timestamp("us", "UTC" if has_zone else None), safe=False)

    def moments(edges: Sequence[Any]) -> Any:
        naive = [np.datetime64(round(edge.timestamp() * 1_000_000), "us") for edge in edges]
        return naive if has_zone else [np.datetime64(edge.replace(tzinfo=None), "us") for edge in edges]

    starts, ends = (np.array(moments(edges)) for edges in zip(*((w.start, w.end) for w in windows), strict=True))
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    if (starts >= ends).any() or (starts[1:] < ends[:-1]).any():
        raise ValueError("the clock was put back in these partitions: use times with a time zone")
    moment = times.to_numpy(zero_copy_only=False).astype("datetime64[us]")
    places = np.searchsorted(starts, moment, side="right") - 1
    is_in = (places >= 0) & (moment < ends[places.clip(min=0)])  # a missing time is in none
    return np.where(is_in, order[places.clip(min=0)], -1)


def _check_column(table: Any, column: object, asset: str) -> None:
    names = list(table.column_names if kind_of(table) == "pyarrow.Table" else table.columns)
    if not isinstance(column, str) or names.count(column) != 1:
        raise InvalidArgument(
            f"this output of {asset} is one table for several partitions, and {PARTITION_EXPR} {column!r} is no column "
            f"of it, only {', '.join(map(repr, names))}: name a column, or return a dictionary of partitions"
        )


def _column(table: Any, column: object) -> Any:
    """A column of a table, as one array of Arrow."""
    import pyarrow as pa

    kind = kind_of(table)
    if kind == "pandas.DataFrame":
        array = pa.Array.from_pandas(table[column])
    else:
        array = table[column] if kind == "pyarrow.Table" else table[column].to_arrow()
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
