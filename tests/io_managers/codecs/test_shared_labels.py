"""Frames with the same columns share their labels, and what pandas has built to find one; nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entrepot.codec import Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType, VersionMismatch
from entrepot_io.codecs import pandas_index
from pandas_equality import assert_same

READ_ONLY_LABELS = int(pd.__version__.partition(".")[0]) >= 3
needs_read_only_labels = pytest.mark.skipif(not READ_ONLY_LABELS, reason="before pandas 3, labels can be written to")


def frame(columns: Any, first: int = 0) -> pd.DataFrame:
    """Two rows of numbers under these labels."""
    count = len(columns)
    return pd.DataFrame(np.arange(first, first + 2 * count).reshape(2, count), columns=columns)


@needs_read_only_labels
def test_frames_with_equal_labels_share_them(round_trip: Any) -> None:
    left, right = round_trip(frame(["a", "b"])), round_trip(frame(["a", "b"], 10))
    assert_same(left, frame(["a", "b"]))
    assert_same(right, frame(["a", "b"], 10))
    assert left.columns.is_(right.columns)
    assert left.columns is not right.columns
    assert not round_trip(frame(["a", "c"])).columns.is_(left.columns)


def test_what_is_done_to_one_frames_columns_is_not_done_to_others(round_trip: Any) -> None:
    changed: list[Callable[[Any], object]] = [
        lambda left: setattr(left.columns, "name", "of one"),
        lambda left: setattr(left.columns, "names", ["of one"]),
        lambda left: setattr(left, "columns", ["x", "y"]),
        lambda left: left.insert(0, "new", 1),
        lambda left: left.__setitem__("new", 1),
        lambda left: left.pop("a"),
        lambda left: left.columns.get_loc("b"),
        lambda left: left.__delitem__("b"),
    ]
    for change in changed:
        left, right = round_trip(frame(["a", "b"])), round_trip(frame(["a", "b"]))
        change(left)
        assert_same(right, frame(["a", "b"]))
        assert_same(round_trip(frame(["a", "b"])), frame(["a", "b"]))
        assert right["b"].tolist() == [1, 3]


@needs_read_only_labels
def test_labels_cannot_be_written_to(round_trip: Any) -> None:
    columns = round_trip(frame(["a", "b"])).columns
    for labels in (columns.array, columns.values):
        with pytest.raises(ValueError, match="read-only"):
            labels[0] = "z"


@needs_read_only_labels
def test_the_name_of_the_labels_is_part_of_them(round_trip: Any) -> None:
    for name in ("kind", None, 0, False, ("a", 1), "other"):
        assert_same(round_trip(frame(pd.Index(["a", "b"], name=name))), frame(pd.Index(["a", "b"], name=name)))


@pytest.mark.parametrize(
    "columns",
    [
        pd.Index(["a", "b"], dtype=object),  # which can be written to
        pd.Index([1, "b"], dtype=object),
        pd.RangeIndex(2),
        pd.Index([1, 5]),
        pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]),
        pd.CategoricalIndex(["a", "b"]),
        pd.date_range("2020", periods=2),
        pd.Index([], dtype="str" if READ_ONLY_LABELS else object),
        pd.Index([f"column {number}" for number in range(100)]),  # in buffers
    ],
    ids=str,
)
def test_other_labels_are_not_shared(round_trip: Any, columns: pd.Index) -> None:
    left, right = round_trip(frame(columns)), round_trip(frame(columns))
    assert_same(left, frame(columns))
    assert not left.columns.is_(right.columns)


def test_long_labels_are_not_kept(round_trip: Any) -> None:
    columns = ["x" * pandas_index.MAX_SHARED_BYTES, "b"]
    left, right = round_trip(frame(columns)), round_trip(frame(columns))
    assert_same(left, frame(columns))
    assert not left.columns.is_(right.columns)


def test_few_kinds_of_labels_are_kept(round_trip: Any) -> None:
    for number in range(pandas_index.SHARED_INDEXES * 2):
        assert list(round_trip(frame(["a", f"b{number}"])).columns) == ["a", f"b{number}"]
    assert pandas_index._labels_of.cache_info().currsize <= pandas_index.SHARED_INDEXES


class Name:
    """A name of labels that is pickled."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name)


def test_a_pickled_name_is_subject_to_the_readers_rule(put: Any) -> None:
    stored = put(frame(pd.Index(["a", "b"], name=Name())), allow_pickle=True)
    assert stored.get().columns.name == Name()
    with pytest.raises(UnsupportedType, match="pickl"):
        stored.get(allow_pickle=False)


def _labels(put: Any) -> tuple[Any, Node, Node]:
    """A stored frame, its tree, and the node of its labels in it."""
    stored = put(frame(["a", "b"]))
    root = unpack_tree(stored.tree)
    return stored, root, root.children[1]


@needs_read_only_labels
def test_damaged_labels_are_reported_each_time(put: Any) -> None:
    for number, error in ((0, CorruptData), (1, VersionMismatch)):
        stored, root, labels = _labels(put)
        if number == 0:
            labels.children[1].children[0].params = ["", 3]  # there are two
        else:
            labels.version = 1000
        stored.tree = pack_tree(root)
        for _ in range(2):
            with pytest.raises(error):
                stored.get()


def test_labels_for_another_number_of_columns_are_refused(put: Any) -> None:
    stored, root, _ = _labels(put)
    put(frame(["a", "b", "c"])).get()  # whose labels are known by now
    root.children[1] = unpack_tree(put(frame(["a", "b", "c"])).tree).children[1]
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData, match="expected 2 labels, found 3"):
        stored.get()


def test_nothing_is_shared_without_a_global_lock(round_trip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandas_index, "_GIL_ENABLED", False)
    left, right = round_trip(frame(["a", "b"])), round_trip(frame(["a", "b"]))
    assert_same(left, right)
    assert not left.columns.is_(right.columns)
