"""Several tables as one, where the types of a column are not the same."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from entrepot.errors import UnsupportedType
from entrepot_io.concatenation import concatenated
from entrepot_io.conversions import pandas_of
from hypothesis import given, settings
from hypothesis import strategies as st


def joined(*tables: pa.Table) -> pa.Table:
    by_day = {f"day {number}": table for number, table in enumerate(tables)}
    return concatenated(by_day, "the asset sales", "annotate the input with dict[str, T]")


def test_equal_schemas_are_not_copied() -> None:
    tables = [pa.table({"n": [number, 2], "s": ["x", None]}) for number in range(3)]
    addresses = [table["n"].chunk(0).buffers()[1].address for table in tables]
    assert [chunk.buffers()[1].address for chunk in joined(*tables)["n"].chunks] == addresses


def test_only_the_column_that_differs_is_copied() -> None:
    tables = [pa.table({"n": [1, 2], "x": [1, 2]}), pa.table({"x": [1.5, None], "n": [3, 4]})]
    whole = joined(*tables)
    assert whole.to_pydict() == {"n": [1, 2, 3, 4], "x": [1.0, 2.0, 1.5, None]}
    assert whole.schema.types == [pa.int64(), pa.float64()]
    for chunk, table in zip(whole["n"].chunks, tables, strict=True):
        assert chunk.buffers()[1].address == table["n"].chunk(0).buffers()[1].address


@pytest.mark.parametrize("order", [1, -1])
def test_what_has_no_type_takes_any(order: int) -> None:
    for column in ([None, "x"], [1], [True], [[1]], [{"a": 1}]):
        tables = [pa.table({"c": pa.nulls(2)}), pa.table({"c": column})][::order]
        assert joined(*tables)["c"].to_pylist() == [*tables[0]["c"].to_pylist(), *tables[1]["c"].to_pylist()]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            [1],
            ["x"],
            "the column 'c' of the asset sales is int64 in the partition day 0 and string in the partition day 1",
        ),
        ([2**53 + 1], [0.5], "the column 'c' in the partition day 0 of the asset sales is int64, and would be double"),
        ([0.5], [2**53 + 1], "the column 'c' in the partition day 1 of the asset sales is int64, and would be double"),
    ],
)
def test_what_would_change_is_refused(first: list[Any], second: list[Any], message: str) -> None:
    with pytest.raises(UnsupportedType, match=rf"^{message}.*: annotate the input with dict\[str, T\]"):
        joined(pa.table({"c": first}), pa.table({"c": second}))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"a": [1]}, "the partition day 1 of the asset sales has no column 'b', which the partition day 0 has"),
        ({"a": [1], "b": [2], "c": [3]}, "has a column 'c', which the partition day 0 has not"),
    ],
)
def test_no_column_is_made_up(other: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedType, match=message):
        joined(pa.table({"a": [1], "b": [2]}), pa.table(other))


def test_columns_of_the_same_name() -> None:
    twice = pa.table([[1], [2]], names=["a", "a"])
    assert joined(twice, twice).columns[1].to_pylist() == [2, 2]
    with pytest.raises(UnsupportedType, match="some of them more than once"):
        joined(pa.table([[1], [2], [3]], names=["a", "a", "b"]), pa.table([[1], [2], [3]], names=["a", "b", "a"]))
    drift = pa.table([[1], [2.5]], names=["a", "a"])
    assert joined(twice, drift).columns[1].to_pylist() == [2.0, 2.5]


def test_pandas_dtypes_of_a_column_that_has_another_type_now() -> None:
    whole = pd.DataFrame(
        {"n": pd.array([1, None], "Int64"), "m": pd.array([1, 2], "Int64")}, index=pd.Index([7, 8], name="k")
    )
    with_halves = pd.DataFrame({"n": [0.5], "m": pd.array([3], "Int64")}, index=pd.Index([9], name="k"))
    frame = pandas_of(joined(pa.Table.from_pandas(whole), pa.Table.from_pandas(with_halves)))
    assert frame["n"].dropna().tolist() == [1.0, 0.5]
    assert frame["m"].dtype == "Int64", "whose type is the same"
    assert frame.index.tolist() == [7, 8, 9]


VALUES: dict[Any, Any] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=3),
    pa.large_string(): st.text(max_size=3),
    pa.null(): st.none(),
    pa.timestamp("s"): st.integers(-(2**40), 2**40),
    pa.timestamp("ns"): st.integers(-(2**62), 2**62),
}
COLUMNS = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.lists(st.none() | VALUES[kind], max_size=3).map(lambda items: pa.array(items, kind))
)


@given(st.lists(COLUMNS, min_size=1, max_size=4))
@settings(deadline=None, max_examples=300)
def test_no_value_changes(columns: list[pa.Array]) -> None:
    try:
        whole = joined(*(pa.table({"c": column}) for column in columns))["c"]
    except UnsupportedType:
        assert len({column.type for column in columns}) > 1
        return
    moment = pa.types.is_timestamp(whole.type)
    plain = [_numbers(column) if moment else column.to_pylist() for column in columns]
    assert (_numbers(whole) if moment else whole.to_pylist()) == [item for items in plain for item in items]


def _numbers(column: Any) -> list[int | None]:
    """Times as nanoseconds, whatever their unit."""
    if pa.types.is_null(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    factor = 10**9 if column.type.unit == "s" else 1
    return [None if number is None else number * factor for number in column.cast(pa.int64()).to_pylist()]
