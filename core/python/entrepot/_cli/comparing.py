"""``entrepot diff``: how two objects differ."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from entrepot._cli.common import add_connection_options, connect, human_bytes, printable, table
from entrepot._cli.heads import head_of
from entrepot.errors import UnsupportedType

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot._cli.common import SubParsers
    from entrepot._client.info import ObjectInfo
    from entrepot._store.store import Store
    from entrepot.ids import ObjectID

DIFFERENT = 3  # exit code; 1 is an error
MAX_ROWS = 10  # that are shown
MAX_COMPARED = 1_000_000  # entries of a list that differs in which differences are looked for
_AT_A_TIME = 10_000  # rows that are compared as Python values, of a column that differs


def add_subcommands(subparsers: SubParsers, resolve_object: Callable[[Store, str], ObjectID]) -> None:
    """Add this module's subcommand; ``resolve_object`` finds an object by ID or name."""
    parser = subparsers.add_parser(
        "diff",
        help="show how two objects differ: type, columns, values, and what they share",
        epilog=f"The exit code is 0 if they are equal, and {DIFFERENT} if they are not.",
    )
    add_connection_options(parser)
    parser.add_argument("first", metavar="A", help="ID or name")
    parser.add_argument("second", metavar="B", help="ID or name")
    parser.set_defaults(run=lambda arguments: run_diff(arguments, resolve_object))


def run_diff(arguments: argparse.Namespace, resolve_object: Callable[[Store, str], ObjectID]) -> int:
    """``entrepot diff``."""
    with connect(arguments) as store:
        oids = [resolve_object(store, text) for text in (arguments.first, arguments.second)]
        infos = [store.info(oid) for oid in oids]
        values = store.get_many(oids)
        print(_format_infos(infos, (arguments.first, arguments.second)))
        differences = [] if oids[0] == oids[1] else differences_between(*values)
    print("\n".join(differences) or "the values are equal")
    return DIFFERENT if differences else 0


def differences_between(first: Any, second: Any) -> list[str]:
    """Say how two values differ; empty: they are equal.

    Tables of any library are compared as Arrow tables, column by column.
    """
    differences: list[str] = []
    names = [f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}" for value in (first, second)]
    if names[0] != names[1]:
        differences.append(f"type: {names[0]} and {names[1]}")
    tables = [_as_table(value) for value in (first, second)]
    if tables[0] is not None and tables[1] is not None:
        return differences + _table_differences(*tables)
    if not differences and not _equal(first, second):
        differences += _row_differences(first, second)
    return differences


def _format_infos(infos: list[ObjectInfo], given: tuple[str, str]) -> str:
    rows = [
        [letter, name, str(info.id), info.type, human_bytes(info.nbytes), human_bytes(_common_bytes(infos))]
        for letter, name, info in zip("AB", given, infos, strict=True)
    ]
    return table(rows, ["", "given as", "id", "type", "bytes", "shared with the other"])


def _common_bytes(infos: list[ObjectInfo]) -> int:
    blobs = [{(blob["blob"], blob["generation"]): blob["used"] for blob in info.blobs} for info in infos]
    return sum(min(used, blobs[1][key]) for key, used in blobs[0].items() if key in blobs[1])


def _as_table(value: Any) -> Any:
    """The value as an Arrow table; None: it is no table."""
    package, name = type(value).__module__.partition(".")[0], type(value).__name__
    if (package, name) == ("pyarrow", "Table"):
        return value
    if package == "pyarrow" and name == "RecordBatch":
        import pyarrow

        return pyarrow.Table.from_batches([value])
    if (package, name) == ("polars", "DataFrame"):
        return value.to_arrow()
    if (package, name) == ("pandas", "DataFrame"):
        import pyarrow

        try:
            return pyarrow.Table.from_pandas(value)
        except (pyarrow.ArrowException, TypeError, ValueError):
            return None  # columns of Python objects that Arrow cannot represent
    return None


def _table_differences(first: Any, second: Any) -> list[str]:
    differences: list[str] = []
    if first.num_rows != second.num_rows:
        differences.append(f"rows: {first.num_rows} and {second.num_rows}")
    fields = [{field.name: printable(str(field.type)) for field in each.schema} for each in (first, second)]
    for name in fields[0]:
        if name not in fields[1]:
            differences.append(f"column {name!r} is only in A")
        elif fields[0][name] != fields[1][name]:
            differences.append(f"column {name!r}: {fields[0][name]} and {fields[1][name]}")
    differences += [f"column {name!r} is only in B" for name in fields[1] if name not in fields[0]]
    if first.column_names != second.column_names and sorted(first.column_names) == sorted(second.column_names):
        differences.append("the columns are in another order")
    if len(fields[0]) != first.num_columns or len(fields[1]) != second.num_columns:
        differences.append("several columns have the same name, so values are not compared")
        return differences
    rows = min(first.num_rows, second.num_rows)
    for name in fields[0]:
        if fields[0][name] == fields[1].get(name):
            columns = [each.column(name).slice(0, rows) for each in (first, second)]
            if not columns[0].equals(columns[1]):
                differences += _column_differences(name, *columns)
    return differences


def _column_differences(name: str, first: Any, second: Any) -> list[str]:
    rows: list[list[str]] = []
    count = 0
    for start in range(0, len(first), _AT_A_TIME):
        parts = [each.slice(start, _AT_A_TIME).to_pylist() for each in (first, second)]
        for offset, (left, right) in enumerate(zip(*parts, strict=True)):
            if not _equal(left, right):
                count += 1
                if len(rows) < MAX_ROWS:
                    rows.append([str(start + offset), str(left), str(right)])
    if not count:
        return []  # NaN, which equals nothing, in the same places
    shown = f", of which {len(rows)} are shown" if count > len(rows) else ""
    return [f"column {name!r}: {_differ(count, 'row')}{shown}", table(rows, ["row", "A", "B"])]


def _row_differences(first: Any, second: Any) -> list[str]:
    if isinstance(first, (bytes, bytearray, memoryview)):
        views = [memoryview(first), memoryview(second)]
        differences = [] if views[0].nbytes == views[1].nbytes else [f"bytes: {views[0].nbytes} and {views[1].nbytes}"]
        same = next((at for at, (left, right) in enumerate(zip(*views, strict=False)) if left != right), None)
        return differences + ([] if same is None else [f"the first byte that differs is at {same}"])
    if _is_array(first):
        return _array_differences(first, second)
    try:
        heads = [head_of(value, min(max(1, len(value)), MAX_COMPARED)) for value in (first, second)]
    except (UnsupportedType, TypeError):
        return ["the values differ"]
    differences = [] if heads[0].total == heads[1].total else [f"length: {heads[0].total} and {heads[1].total}"]
    rows = [
        [str(at), " ".join(left), " ".join(right)]
        for at, (left, right) in enumerate(zip(heads[0].rows, heads[1].rows, strict=False))
        if left != right
    ]
    if not rows:
        return differences or ["the values differ"]
    shown = f", of which {MAX_ROWS} are shown" if len(rows) > MAX_ROWS else ""
    return [*differences, f"{_differ(len(rows), heads[0].what)}{shown}", table(rows[:MAX_ROWS], ["", "A", "B"])]


def _differ(count: int, what: str, of: str = "") -> str:
    noun = what if count == 1 else "entries" if what == "entry" else f"{what}s"
    return f"{count} {noun}{of} {'differs' if count == 1 else 'differ'}"


def _array_differences(first: Any, second: Any) -> list[str]:
    if first.dtype != second.dtype or first.shape != second.shape:
        return [f"array: {first.dtype} {first.shape} and {second.dtype} {second.shape}"]
    import numpy

    differ = numpy.asarray(first != second)
    if first.dtype.kind in "fc":
        differ &= ~(numpy.isnan(first) & numpy.isnan(second))
    places = numpy.argwhere(differ)
    rows = [
        [", ".join(map(str, place)), str(first[tuple(place)]), str(second[tuple(place)])]
        for place in places[:MAX_ROWS].tolist()
    ]
    shown = f", of which {MAX_ROWS} are shown" if len(places) > MAX_ROWS else ""
    counted = _differ(len(places), "element", f" of {first.size}")
    return [f"{counted}{shown}", table(rows, ["index", "A", "B"])]


def _is_array(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "ndim")


def _equal(first: Any, second: Any) -> bool:
    """Whether two values are equal, with NaN equal to NaN; arrays and tables may be within lists and dicts."""
    if type(first) is not type(second):
        return False
    if _is_array(first):
        import numpy

        array: Any = first
        if array.dtype != second.dtype:
            return False
        return bool(numpy.array_equal(array, second, equal_nan=array.dtype.kind in "fc"))
    if isinstance(first, float):
        return bool(first == second or (first != first and second != second))
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_equal(item, second[key]) for key, item in first.items())
    for method in ("equals", "identical"):
        if hasattr(first, method):
            return bool(getattr(first, method)(second))
    return bool(first == second)
