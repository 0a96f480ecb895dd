"""``Store.build_table``: no row that was appended is missing, and none is there twice, whatever interrupts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest

ROWS = 2_000  # 16 KB: gathered
SCHEMA = pa.schema([("n", pa.int64())])


class Interrupted(BaseException):
    """As Ctrl-C, but only where the test expects it."""


@contextmanager
def interruptions(seconds: float) -> Iterator[list[bool]]:
    """Raise :class:`Interrupted` in the code of the builders, again and again, while the list that this yields has an
    entry."""
    wanted: list[bool] = []

    def interrupt(number: int, frame: Any) -> None:
        if wanted and frame is not None and "_builders" in frame.f_code.co_filename:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield wanted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_interrupted_appends_have_appended_all_or_nothing(store: entrepot.Store) -> None:
    interrupted = 0
    with interruptions(0.0007) as wanted:
        for _ in range(12):
            table, expected = store.build_table(SCHEMA), []
            for number in range(300):
                batch = pa.record_batch([np.full(ROWS, number)], schema=SCHEMA)
                before = table.num_rows
                try:
                    wanted.append(True)
                    table.append(batch)
                    wanted.clear()
                except Interrupted:
                    wanted.clear()
                    interrupted += 1
                if table.num_rows != before:
                    expected.append(number)
            value = store.get(table.seal())
            np.testing.assert_array_equal(value["n"].to_numpy(), np.repeat(expected, ROWS))
            store.delete(table.id)
            del value
    assert interrupted > 0


def dictionaries(values: pa.DataType) -> list[Any]:
    """Batches of a dictionary column, each with its own dictionary."""
    made = []
    for number in range(3):
        if pa.types.is_list(values):
            dictionary = pa.array([[number], [number + 1]], values)
        elif pa.types.is_struct(values):
            dictionary = pa.array([{"a": number}, {"a": number + 1}], values)
        elif pa.types.is_dictionary(values):
            dictionary = pa.array([f"{number}", f"{number + 1}"]).dictionary_encode()
        else:
            storage = pa.array([bytes([number] * 16), bytes([number + 1] * 16)], pa.binary(16))
            dictionary = pa.ExtensionArray.from_storage(values, storage)
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), dictionary)
        made.append(pa.record_batch([column], names=["d"]))
    return made


@pytest.mark.parametrize("values", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str)
def test_dictionaries_that_cannot_be_united(store: entrepot.Store, values: pa.DataType) -> None:
    batches = dictionaries(values)
    with store.build_table(batches[0].schema) as table:
        for batch in batches:
            table.append(batch)
    value = store.get(table.id)
    value.validate(full=True)
    assert value["d"].to_pylist() == pa.Table.from_batches(batches)["d"].to_pylist()


@pytest.mark.parametrize("values", [pa.dictionary(pa.int32(), pa.string()), pa.uuid()], ids=str)
def test_dictionaries_that_arrow_cannot_serialize_are_refused_at_once(
    store: entrepot.Store, values: pa.DataType
) -> None:
    batches = dictionaries(values)
    with store.build_table(batches[0].schema) as table:
        for batch in batches:
            with pytest.raises(entrepot.UnsupportedType):
                table.append(batch)
        assert table.num_rows == 0
    assert store.get(table.id).num_rows == 0


def test_an_array_of_a_builder_that_is_gone_is_read_only(store: entrepot.Store) -> None:
    array = store.build_table(SCHEMA, rows=500_000).column("n")
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_column_larger_than_any_store(store: entrepot.Store) -> None:
    table = store.build_table(SCHEMA, rows=1 << 62)
    with pytest.raises(entrepot.InvalidArgument, match="larger than any store"):
        table.column("n")
    table.drop()
