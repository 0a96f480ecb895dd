"""Text of arrays of Python objects as Arrow has it: what Arrow itself makes of it, and what is no text."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot import object_text
from entrepot.errors import InvalidArgument
from hypothesis import given
from hypothesis import strategies as st

ABSENT = {"none": None, "nan": float("nan"), "na": pd.NA}


def objects(values: list[Any]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def as_arrow(values: Any, size: object_text.TextSize) -> Any:
    assert size.nbytes is not None
    offsets, data = np.empty(len(values) + 1, np.int64), np.empty(size.nbytes, np.uint8)
    validity = np.empty((len(values) + 7) // 8, np.uint8) if size.nulls else None
    object_text.write(values, offsets, data, validity)
    bits = None if validity is None else pa.py_buffer(validity)
    text: Any = pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(data), bits)
    text.validate(full=True)
    return text


@given(
    st.sampled_from(sorted(ABSENT)),
    st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])), st.text("aé€😀", max_size=3))),
    st.sampled_from([1, 2, -1, -3]),
)
def test_it_is_what_arrow_makes_of_it(missing: str, values: list[str | None], step: int) -> None:
    array = objects([ABSENT[missing] if value is None else value for value in values])[::step]
    size = object_text.measure(array, pd.NA)
    assert size is not None
    expected = pa.array(array, pa.large_string(), from_pandas=True)
    assert size.nulls == expected.null_count
    assert size.missing == (missing if size.nulls else "none")
    assert as_arrow(array, size).equals(expected)


class Text(str):
    """A string of a class of its own, which would not come back as one."""


@pytest.mark.parametrize(
    "values",
    [["a", 1], ["a", None, float("nan")], [pd.NA, None], ["a", np.float64("nan")], [0.5], [Text("a")], [b"a"]],
    ids=str,
)
def test_what_is_no_text_is_told_apart(values: list[Any]) -> None:
    assert object_text.measure(objects(values), pd.NA) is None


def test_surrogates_have_no_utf8() -> None:
    assert object_text.measure(objects(["a", "\ud800", None]), pd.NA) == ("none", 1, None)


def test_other_arrays_are_refused() -> None:
    for other in (np.arange(3), np.empty((2, 2), object), np.array(["a"])):
        with pytest.raises(InvalidArgument, match="one-dimensional arrays of objects"):
            object_text.measure(other, pd.NA)
    with pytest.raises(TypeError):
        object_text.measure(["a"], pd.NA)


@pytest.mark.parametrize("change", ["longer", "shorter", "é" * 3, None, 5], ids=str)
def test_an_array_that_was_changed_after_it_was_measured_is_refused(change: Any) -> None:
    array = objects(["abcdef"] * 100)
    size = object_text.measure(array, pd.NA)
    assert size is not None
    array[99] = {"longer": "abcdefg", "shorter": "abcde"}.get(change, change) if change is not None else None
    if change == "é" * 3:
        assert len(as_arrow(array, size)) == 100  # as many bytes as before
        return
    with pytest.raises(InvalidArgument, match="was changed by another thread"):
        as_arrow(array, size)


def test_buffers_of_other_sizes_are_refused() -> None:
    array = objects(["ab"] * 10)
    offsets, data = np.empty(11, np.int64), np.empty(20, np.uint8)
    for wrong in [(offsets[:10], data, None), (offsets, data[:19], None), (offsets, data, np.empty(1, np.uint8))]:
        with pytest.raises(InvalidArgument):
            object_text.write(array, *wrong)
    read_only = np.empty(20, np.uint8)
    read_only.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        object_text.write(array, offsets, read_only, None)


def test_other_threads_run_meanwhile() -> None:
    """Every 262,144 elements; between two lines of the test, they get a turn or two as well."""
    array = objects(["text"]).repeat(8_000_000)
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0)  # gives its turn back

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = turns
        object_text.measure(array, pd.NA)
        after = turns
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert after - before >= 20
