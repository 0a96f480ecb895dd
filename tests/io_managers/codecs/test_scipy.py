"""SciPy's sparse arrays and matrices: class, dtypes and flags survive; the arrays inside are not copied."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot.codec import CopyMode, Node, unpack_tree
from entrepot.errors import UnsupportedType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent))

from damaged_trees import expect_corrupt, tree_of

PROPERTY = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
FORMATS = ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"]
KINDS = ["array", "matrix"]
DTYPES = ["?", "i1", "u2", "i4", "i8", "f4", "f8", "g", "c8", "c16"]
CLASSES = [f"{form}_{kind}" for form in FORMATS for kind in KINDS]


def arrays_of(value: Any) -> dict[str, Any]:
    """The arrays that a sparse value consists of, by name."""
    if value.format == "coo":
        return {"data": value.data, **{f"axis {axis}": part for axis, part in enumerate(value.coords)}}
    if value.format == "dia":
        return {"data": value.data, "offsets": value.offsets}
    if value.format in ("csr", "csc", "bsr"):
        return {"data": value.data, "indices": value.indices, "indptr": value.indptr}
    return {}


def assert_same(back: Any, value: Any) -> None:
    """Exact equality: class, shape, dtypes, the arrays inside element by element, explicit zeros and flags."""
    assert type(back) is type(value)
    assert back.shape == value.shape
    assert back.dtype == value.dtype
    for name, part in arrays_of(value).items():
        other = arrays_of(back)[name]
        assert (other.dtype, other.shape) == (part.dtype, part.shape), name
        assert other.tobytes() == part.tobytes(), name
    if value.format == "dok":
        assert list(back.items()) == list(value.items())
    if value.format == "lil":
        assert back.rows.tolist() == value.rows.tolist()
        assert back.data.tolist() == value.data.tolist()


def random_sparse(name: str, dtype: str = "f8", seed: int = 1, rows: int = 60, columns: int = 48) -> Any:
    chance = np.random.default_rng(seed)
    dense = chance.integers(1, 100, (rows, columns)) * (chance.random((rows, columns)) < 0.2)
    return getattr(sparse, name)(dense.astype(dtype))


@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_comes_back_without_pickle(put: Any, name: str, copy: CopyMode) -> None:
    value = random_sparse(name)
    stored = put(value)
    assert stored.codec == "scipy.sparse"
    back = stored.get(copy)
    assert_same(back, value)
    for part in arrays_of(back).values():
        assert part.flags.writeable == (copy != "never")
    vector = np.arange(48.0)
    assert np.array_equal(back @ vector, value @ vector)


@pytest.mark.parametrize("name", [name for name in CLASSES if name[:3] not in ("lil", "dok")])
def test_arrays_are_not_copied(put: Any, name: str) -> None:
    value = random_sparse("csr_array", rows=400, columns=300)
    value = getattr(sparse, name)(sparse.eye_array(4000) if name.startswith("dia") else value)
    stored = put(value)
    assert stored.nbytes == sum(part.nbytes for part in arrays_of(value).values() if part.nbytes > 512)
    back = stored.get()
    for part_name, part in arrays_of(back).items():
        if part.nbytes > 512:
            assert stored.holds(part.__array_interface__["data"][0], part.nbytes), part_name
    assert not stored.holds(value.data.__array_interface__["data"][0]), "the control: the original is elsewhere"


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_wide_indices_stay_wide(put: Any, form: str) -> None:
    value = random_sparse(f"{form}_array", rows=400, columns=300)
    value.indices, value.indptr = value.indices.astype("i8"), value.indptr.astype("i8")
    assert_same(put(value).get(), value)
    coordinates = random_sparse("coo_array")
    coordinates.coords = tuple(part.astype("i8") for part in coordinates.coords)
    assert_same(put(coordinates).get(), coordinates)


def unsorted() -> Any:
    return sparse.csr_array((np.arange(4.0), np.array([3, 1, 1, 0]), np.array([0, 2, 2, 4])), shape=(3, 5))


def test_flags_are_kept_and_not_computed(put: Any) -> None:
    value = unsorted()
    back = put(value).get()
    for item in (value, back):
        assert not {"_has_sorted_indices", "_has_canonical_format"} & set(vars(item)), "nobody has asked yet"
    assert not value.has_sorted_indices
    assert not value.has_canonical_format
    back = put(value).get()
    assert (back.has_sorted_indices, back.has_canonical_format) == (False, False)
    value.sum_duplicates()
    back = put(value).get()
    assert (vars(back)["_has_sorted_indices"], vars(back)["_has_canonical_format"]) == (True, True)
    doubled = sparse.coo_array((np.ones(3), (np.array([1, 1, 0]), np.array([2, 2, 0]))), shape=(3, 3))
    back = put(doubled).get()
    assert not back.has_canonical_format
    assert back.toarray()[1, 2] == 2
    doubled.sum_duplicates()
    assert put(doubled).get().has_canonical_format


def test_reading_what_is_not_in_order_needs_a_writable_copy(put: Any) -> None:
    stored = put(unsorted())
    with pytest.raises(ValueError, match="read-only"):
        stored.get().sum_duplicates()
    writable = stored.get("on_write")
    writable.sum_duplicates()
    assert writable.has_canonical_format


def test_entries_that_are_zero_and_rows_that_are_empty(put: Any) -> None:
    value = sparse.csr_array((np.zeros(3), np.array([0, 1, 4]), np.array([0, 0, 3, 3])), shape=(3, 5))
    assert_same(put(value).get(), value)
    for name in CLASSES:
        for shape in ((0, 0), (0, 5), (5, 0), (7, 3)):
            if name.startswith("bsr") and 0 in shape:
                continue  # SciPy cannot make one
            empty = getattr(sparse, name)(shape, dtype="f4")
            assert_same(put(empty).get(), empty)


def test_other_numbers_of_axes(put: Any) -> None:
    assert_same(put(sparse.csr_array(np.arange(50) % 3)).get(), sparse.csr_array(np.arange(50) % 3))
    value = sparse.dok_array(np.arange(50) % 3)
    assert_same(put(value).get(), value)
    if hasattr(sparse.coo_array, "coords") or hasattr(sparse.coo_array((2, 2)), "coords"):
        cube = sparse.coo_array(np.arange(60).reshape(3, 4, 5) % 4)
        assert_same(put(cube).get(), cube)


def test_unpruned_arrays_keep_their_spare_room(put: Any) -> None:
    value = random_sparse("csr_array")
    value.data, value.indices = np.append(value.data, [7.0, 8.0]), np.append(value.indices, [0, 1]).astype("i4")
    back = put(value).get()
    assert len(back.data) == len(value.data)
    assert (back != value).nnz == 0


def test_slices_and_transposed_blocks(put: Any) -> None:
    value = random_sparse("csr_array")
    value.data = np.repeat(value.data, 2)[::2]
    assert_same(put(value).get(), value)
    blocks = random_sparse("bsr_array", rows=60, columns=48).tobsr((3, 4)).T
    assert_same(put(blocks).get(), blocks)


def test_what_needs_pickle(put: Any) -> None:
    narrow = random_sparse("csr_array")
    narrow.indices = narrow.indices.astype("i2")
    objects = random_sparse("csr_array")
    objects.data = objects.data.astype(object)
    disorder = random_sparse("lil_array")
    disorder.rows[3] = list(reversed(disorder.rows[3]))
    for value in (narrow, objects, disorder):
        with pytest.raises(UnsupportedType):
            put(value)
        assert type(put(value, allow_pickle=True).get()) is type(value)


def test_inside_containers_and_pickled_objects(put: Any) -> None:
    value = random_sparse("csr_matrix", rows=400, columns=300)
    stored = put({"a": [value]})
    back = stored.get()["a"][0]
    assert_same(back, value)
    assert stored.holds(back.data.__array_interface__["data"][0], back.data.nbytes)
    stored = put([value, object], allow_pickle=True)
    assert [node.codec for node in unpack_tree(stored.tree).children] == ["scipy.sparse"]
    assert_same(stored.get()[0], value)


@PROPERTY
@given(
    name=st.sampled_from(CLASSES),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    wide=st.booleans(),
    data=st.data(),
)
def test_any_sparse_value_comes_back(
    put: Any, name: str, dtype: str, shape: tuple[int, int], wide: bool, data: Any
) -> None:
    count = data.draw(st.integers(0, 20))
    rows = np.array(data.draw(st.lists(st.integers(0, shape[0] - 1), min_size=count, max_size=count)), "i4")
    columns = np.array(data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=count, max_size=count)), "i4")
    values = np.array(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy advises against building some formats like this
        built = sparse.coo_array((values, (rows, columns)), shape=shape)
        value = getattr(sparse, name)(built)
    if wide and name[:3] in ("csr", "csc", "bsr"):
        value.indices, value.indptr = value.indices.astype("i8"), value.indptr.astype("i8")
    back = put(value).get(data.draw(st.sampled_from(["never", "on_write", "always"])))
    assert_same(back, value)
    assert np.array_equal(back.toarray(), value.toarray())


def replaced(root: Node, number: int, part: Any, put: Any) -> Node:
    """Replace a child by another array, which is small enough to be stored in its node."""
    root.children[number] = unpack_tree(put(part).tree)
    return root


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "lil"])
@pytest.mark.parametrize(
    ("number", "position", "bad", "match"),
    [
        (1, 0, 5, "index is out of range"),
        (1, 0, -1, "index is out of range"),
        (1, 0, 2**31 - 1, "index is out of range"),
        (2, 0, 1, "do not ascend from 0"),
        (2, 1, -1, "do not ascend from 0"),
        (2, 1, 9, "do not ascend from 0"),
        (2, -1, 99, "do not ascend from 0"),
    ],
)
def test_indices_that_lead_elsewhere(put: Any, form: str, number: int, position: int, bad: int, match: str) -> None:
    stored, root = tree_of(put, getattr(sparse, f"{form}_array")(np.eye(5)))
    part = {1: np.arange(5, dtype="i4"), 2: np.arange(6, dtype="i4")}[number].copy()
    part[position] = bad
    expect_corrupt(stored, replaced(root, number, part, put), match)


@pytest.mark.parametrize("form", ["coo", "dok"])
@pytest.mark.parametrize("bad", [5, -1, 2**31 - 1])
def test_coordinates_that_lead_elsewhere(put: Any, form: str, bad: int) -> None:
    stored, root = tree_of(put, getattr(sparse, f"{form}_array")(np.eye(5)))
    expect_corrupt(stored, replaced(root, 2, np.array([0, 1, 2, 3, bad], "i4"), put), "index is out of range")


@pytest.mark.parametrize(
    ("form", "number", "part", "match"),
    [
        ("csr", 1, np.arange(4, dtype="i4"), "4 indices"),
        ("csr", 1, np.arange(5, dtype="f4"), "of dtype float32"),
        ("csr", 1, np.arange(5, dtype=">i4"), "of dtype >i4"),
        ("csr", 1, np.broadcast_to(np.int32(0), (5,)), "its indices are"),
        ("csr", 1, np.arange(5, dtype="i4").reshape(5, 1), "2-dimensional"),
        ("csr", 2, np.broadcast_to(np.int32(0), (2**40,)), "its indices are"),
        ("csr", 2, np.arange(5, dtype="i4"), "5 pointers"),
        ("csr", 0, np.eye(5), "do not form"),
        ("bsr", 0, np.ones((5, 2, 1)), "do not fill"),
        ("bsr", 0, np.ones((5, 0, 0)), "do not fill"),
        ("coo", 1, np.arange(4, dtype="i4"), "one coordinate for each"),
        ("dia", 1, np.zeros(2, dtype="i4"), "diagonals"),
    ],
)
def test_parts_that_do_not_match(put: Any, form: str, number: int, part: Any, match: str) -> None:
    stored, root = tree_of(put, getattr(sparse, f"{form}_array")(np.eye(5)))
    expect_corrupt(stored, replaced(root, number, part, put), match)


@pytest.mark.parametrize("params", [None, [], ["csr_array", [5, 5], None], ["xyz_array", [5, 5], None, None]])
@pytest.mark.parametrize("rest", [0, 1])
def test_params_that_describe_nothing(put: Any, params: Any, rest: int) -> None:
    stored, root = tree_of(put, sparse.csr_array(np.eye(5)))
    root.params = params
    expect_corrupt(stored, root, "damaged")
    stored, root = tree_of(put, sparse.csr_array(np.eye(5)))
    root.params[1:] = [[5, 6, 7], None, None] if rest else [[5, 5], 7, None]
    expect_corrupt(stored, root, "damaged")


def test_columns_of_a_lil_that_are_not_in_order(put: Any) -> None:
    stored, root = tree_of(put, sparse.lil_array(np.ones((2, 3))))
    expect_corrupt(stored, replaced(root, 1, np.array([0, 1, 2, 2, 1, 0], "i4"), put), "not in order")
