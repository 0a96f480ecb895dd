"""The first rows of values as text: a cell that a library cannot show does not hide the others."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot.first_rows import FirstRows, cell_text, first_rows
from entrepot.library_errors import is_library_error, reason_of
from hypothesis import given, settings
from hypothesis import strategies as st

UNITS = ("s", "ms", "us", "ns")
BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], "i4").tobytes()), pa.py_buffer(b"a\xff\xfe")]
)


class NoText:
    """A value whose text raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text today")


def shown(value: Any) -> FirstRows:
    rows = first_rows(value, 5, str, index=False)
    assert rows is not None
    return rows


def beside(column: Any) -> pa.Table:
    return pa.table({"bad": column, "n": range(len(column))})


CELLS: dict[str, tuple[Any, str]] = {
    "a timestamp": (pa.array([0, 2**40], pa.timestamp("s")), "<value out of range: 1099511627776>"),
    "a date": (pa.array([0, 2**30], pa.date32()), "<value out of range: 1073741824>"),
    "milliseconds": (pa.array([0, 2**60], pa.date64()), "<value out of range: 1152921504606846976>"),
    "a duration": (pa.array([0, 2**62], pa.duration("s")), "4611686018427387904"),
    "the last second, in Tokyo": (
        pa.array([0, 253402300799], pa.timestamp("s", "Asia/Tokyo")),
        "10000-01-01 08:59:59+",
    ),
    "in a list": (pa.array([[0], [2**40]], pa.list_(pa.timestamp("s"))), "[<value out of range: 1099511627776>]"),
    "in a struct": (
        pa.array([{"t": 0}, {"t": 2**40}], pa.struct({"t": pa.timestamp("s")})),
        "<not shown: OverflowError",
    ),
    "no UTF-8": (BAD_TEXT, "\N{REPLACEMENT CHARACTER}"),
}


@pytest.mark.parametrize(("column", "text"), CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("chunked", [False, True])
def test_arrow_has_words_for_what_python_has_not(column: Any, text: str, chunked: bool) -> None:
    rows = shown(beside(pa.chunked_array([column]) if chunked else column))
    assert text in rows.cells[1][0]
    assert "out of range" not in rows.cells[0][0]
    assert [cells[1] for cells in rows.cells] == ["0", "1"]
    assert text in shown(column).cells[1][0], "an array by itself"


def test_a_time_zone_that_does_not_exist() -> None:
    rows = shown(beside(pa.array([1], pa.timestamp("us", "Mars/Phobos"))))
    assert rows.cells == [["1970-01-01 00:00:00.000001Z", "0"]]


POLARS: dict[str, tuple[pl.Series, str]] = {
    "Datetime": (pl.Series([0, 2**62]).cast(pl.Datetime("us")), "out of range"),
    "Date": (pl.Series([0, 2**30], dtype=pl.Int32).cast(pl.Date), "out of range"),  # of which Rust panics
    "Duration": (pl.Series([0, 2**62]).cast(pl.Duration("ms")), "4611686018427387904"),
    "List": (pl.Series([[0], [2**62]]).cast(pl.List(pl.Datetime("us"))), "out of range"),
}


@pytest.mark.parametrize(("column", "text"), POLARS.values(), ids=POLARS)
def test_what_polars_has_no_python_value_for(column: pl.Series, text: str) -> None:
    rows = shown(pl.DataFrame({"bad": column, "n": [1, 2]}))
    assert text in rows.cells[1][0]
    assert text not in rows.cells[0][0]
    assert [cells[1] for cells in rows.cells] == ["1", "2"]


def test_what_pandas_has_no_python_value_for() -> None:
    bad: Any = pd.array(pa.array([0, 2**40], pa.timestamp("s")), dtype=pd.ArrowDtype(pa.timestamp("s")))
    frame = pd.DataFrame({"bad": bad, "objects": [NoText(), 10**5000], "n": [1, 2]})
    assert sys.get_int_max_str_digits() == 4300
    assert [cells[2] for cells in shown(frame).cells] == ["1", "2"]
    assert shown(frame).cells[1][0] == "<value out of range: 1099511627776>"
    assert shown(frame).cells[0][1] == "<not shown: RuntimeError: no text today>"
    assert shown(frame).cells[1][1].startswith("<not shown: ValueError: Exceeds the limit (4300 digits)")
    by_bad = first_rows(frame.set_index("bad"), 5, str)
    assert by_bad is not None
    assert by_bad.cells[1][0] == "<value out of range: 1099511627776>"


def test_what_pandas_shows_otherwise_is_as_before() -> None:
    frame = pd.DataFrame(
        {1: [1, None], "t": pd.Series([dt.datetime(2026, 1, 1), None]), "c": pd.Categorical(["x", "y"])}
    )
    rows = first_rows(frame, 5, repr)
    assert rows is not None
    assert rows.cells == [[repr(item) for item in row] for row in frame.itertuples(name=None)]
    assert shown(frame[[]]).cells == []


@pytest.mark.parametrize("value", [[1, NoText()], {1: 2, 3: NoText()}])
def test_containers(value: Any) -> None:
    assert shown(value).cells[1][-1] == "<not shown: RuntimeError: no text today>"
    assert shown(value).cells[0][0] == "1"


def test_names_are_cut_as_cells_are() -> None:
    for table in (pa.table({"c" * 1000: [1]}), pd.DataFrame({"c" * 1000: [1]}), pl.DataFrame({"c" * 1000: [1]})):
        rows = first_rows(table, 1, lambda value: str(value)[:10])
        assert rows is not None
        assert rows.columns[-1][0] == "c" * 10
    assert shown(pd.DataFrame([[1]], columns=pd.Index([NoText()], dtype=object))).columns[0][0].startswith("<not shown")


def test_the_end_of_the_program_is_none_of_a_cell() -> None:
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit):

        def ends(_: Any, error: type[BaseException] = error) -> str:
            raise error

        assert not is_library_error(error())
        with pytest.raises(error):
            cell_text(1, ends)
        with pytest.raises(error):
            first_rows(pa.table({"n": [1]}), 1, ends)


def test_a_panic_is_an_error_of_a_library() -> None:
    with pytest.raises(BaseException, match="out-of-range date") as panic:
        pl.Series([2**30], dtype=pl.Int32).cast(pl.Date).to_list()
    assert not isinstance(panic.value, Exception)
    assert is_library_error(panic.value)
    assert reason_of(panic.value) == "PanicException: out-of-range date"


def test_an_error_without_a_text_still_has_a_type() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason_of(Silent()) == "Silent"
    assert len(reason_of(ValueError("x" * 1000))) == 120


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.sampled_from(UNITS))
@settings(deadline=None)
def test_any_time_is_shown(numbers: list[int | None], unit: Any) -> None:
    for type_ in (pa.timestamp(unit), pa.timestamp(unit, "Europe/Berlin"), pa.duration(unit)):
        column = pa.array(numbers, type_)
        arrow = [cells[0] for cells in shown(pa.table({"t": column})).cells]
        assert len(arrow) == len(numbers)
        for number, text in zip(numbers, arrow, strict=True):
            assert (text == "None") == (number is None)
        frame = pd.DataFrame({"t": pd.array(column, dtype=pd.ArrowDtype(type_))})
        assert len(shown(frame).cells) == len(numbers)


def test_times_that_python_has_are_pythons() -> None:
    day = dt.datetime(2026, 1, 2, 3, 4, 5)
    assert shown(pa.table({"t": [day]})).cells == [[str(day)]]
    assert shown(pl.DataFrame({"t": [day]})).cells == [[str(day)]]
