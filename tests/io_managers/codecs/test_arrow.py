"""Arrow values of all types: exact round trips, chunk by chunk and without copying."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from entrepot.codec import CopyMode
from entrepot.errors import UnsupportedType
from entrepot_io.codecs import arrow_arrays
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

run_end_encode: Any = getattr(pyarrow.compute, "run_end_encode")  # noqa: B009 - made at import
PROPERTY = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    """An extension type that tests register or leave unregistered."""

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return str(self.scale).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Celsius:
        return cls(int(serialized))


def arrays(count: int) -> dict[str, Any]:
    """One array of each type, with nulls where the type allows them."""
    numbers = list(range(count))
    holes = [None if number % 3 == 1 else number % 100 for number in numbers]
    text = [None if number % 4 == 2 else f"s{number}" * (number % 5 * 4) for number in numbers]
    lists = [None if number % 5 == 3 else holes[number : number + 3] for number in numbers]
    arrays_by_name: dict[str, Any] = {"null": pa.nulls(count)}
    integers = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
    for kind in (*integers, pa.float32(), pa.float64()):
        arrays_by_name[str(kind)] = pa.array(holes, kind)
    arrays_by_name["halffloat"] = pa.array([None if item is None else np.float16(item) for item in holes], pa.float16())
    for kind in (pa.date32(), pa.time32("s"), pa.time32("ms")):
        arrays_by_name[str(kind)] = pa.array(holes, pa.int32()).cast(kind)
    for kind in (pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.time64("ns"), pa.duration("ms")):
        arrays_by_name[str(kind)] = pa.array(holes, pa.int64()).cast(kind)
    arrays_by_name["date64"] = arrays_by_name["date32[day]"].cast(pa.date64())
    arrays_by_name["bool"] = pa.array([None if item is None else bool(item % 2) for item in holes])
    decimals = [None if item is None else Decimal(item) for item in holes]
    for kind in (pa.decimal128(20, 2), pa.decimal256(50, 2)):
        arrays_by_name[str(kind)] = pa.array(decimals, kind)
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        arrays_by_name[str(kind)] = pa.array(text, kind)
    arrays_by_name["fixed-size binary"] = pa.array(
        [None if item is None else b"%04d" % item for item in holes], pa.binary(4)
    )
    arrays_by_name["interval"] = pa.array([None if item is None else pa.MonthDayNano([item, 1, 2]) for item in holes])
    for kind in (
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
    ):
        arrays_by_name[str(kind)] = pa.array(lists, kind)
    arrays_by_name["list of lists of text"] = pa.array(
        [None if item is None else [text[:2], None, []] for item in lists], pa.list_(pa.list_(pa.string()))
    )
    arrays_by_name["fixed-size list"] = pa.array(
        [None if item is None else [1, None] for item in lists], pa.list_(pa.int32(), 2)
    )
    arrays_by_name["struct"] = pa.array(
        [None if n % 5 == 3 else {"a": n, "b": text[n], "c": [{"d": text[n]}]} for n in numbers],
        pa.struct({"a": pa.int64(), "b": pa.string(), "c": pa.list_(pa.struct({"d": pa.string()}))}),
    )
    arrays_by_name["map"] = pa.array(
        [None if n % 5 == 3 else [(f"k{n}", n), ("z", None)] for n in numbers], pa.map_(pa.string(), pa.int32())
    )
    arrays_by_name["dictionary"] = pa.array(text, pa.string()).dictionary_encode()
    arrays_by_name["ordered dictionary"] = pa.DictionaryArray.from_arrays(
        pa.array([n % 2 for n in numbers], pa.int8()), pa.array(["x", "y"]), ordered=True
    )
    arrays_by_name["list of dictionaries"] = pa.array(
        [None if n % 5 == 3 else [text[n]] for n in numbers], pa.list_(pa.dictionary(pa.int32(), pa.string()))
    )
    arrays_by_name["run-end encoded"] = run_end_encode(pa.array([n // 3 for n in numbers], pa.int64()))
    codes = pa.array([n % 2 for n in numbers], pa.int8())
    both = [pa.array(numbers, pa.int64()), pa.array([f"u{n}" for n in numbers], pa.string())]
    arrays_by_name["sparse union"] = pa.UnionArray.from_sparse(codes, both)
    arrays_by_name["dense union"] = pa.UnionArray.from_dense(
        codes, pa.array([n // 2 for n in numbers], pa.int32()), both, ["p", "q"], [0, 1]
    )
    uuids = pa.array([bytes([n % 256] * 16) for n in numbers], pa.binary(16))
    arrays_by_name["uuid"] = pa.ExtensionArray.from_storage(pa.uuid(), uuids)
    pairs = pa.array([[n, n] for n in numbers], pa.list_(pa.int32(), 2))
    arrays_by_name["tensor"] = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), (2,)), pairs)
    return arrays_by_name


ARRAYS = {count: arrays(count) for count in (0, 1, 50)}
NAMES = list(ARRAYS[1])


def assert_same(back: Any, value: Any) -> None:
    """Exact equality: class, type with metadata, values; also fully validates the result."""
    assert type(back) is type(value)
    assert back.type.equals(value.type, check_metadata=True)
    back.validate(full=True)
    assert back.equals(value)
    assert back.null_count == value.null_count


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", list(ARRAYS))
def test_arrays_and_their_slices_come_back_the_same(round_trip: Any, name: str, count: int) -> None:
    array = ARRAYS[count][name]
    for start, length in ((0, count), (0, 3), (3, count), (count // 2 + 1, 7), (count, 0), (5, count // 2)):
        part = array.slice(start, length)
        assert_same(round_trip(part), part)
        assert_same(round_trip(part, "always"), part)
        chunked = pa.chunked_array([part, array], type=array.type)
        back = round_trip(chunked)
        assert back.equals(chunked)
        assert [len(chunk) for chunk in back.chunks] == [len(part), count]


@pytest.mark.parametrize("count", list(ARRAYS))
def test_tables_and_batches_of_all_types(round_trip: Any, count: int) -> None:
    schema = pa.schema(
        [pa.field(name, array.type, metadata={"of": name}) for name, array in ARRAYS[count].items()],
        metadata={"key": b"\xff"},
    )
    table = pa.Table.from_arrays(list(ARRAYS[count].values()), schema=schema)
    for value in (table, table.slice(3, 10), *table.to_batches()):
        back = round_trip(value)
        assert type(back) is type(value)
        assert back.schema.equals(value.schema, check_metadata=True)
        back.validate(full=True)
        assert back.equals(value)


@pytest.mark.parametrize("name", NAMES)
def test_types_and_scalars_come_back_the_same(round_trip: Any, name: str) -> None:
    array = ARRAYS[50][name]
    assert round_trip(array.type) == array.type
    for index in (0, 1, 3):
        scalar = array[index]
        back = round_trip(scalar, allow_pickle=True)
        assert type(back) is type(scalar)
        assert back.equals(scalar)


def test_schemas_and_fields_keep_metadata(round_trip: Any) -> None:
    field = pa.field("a", pa.list_(pa.field("el", pa.int8(), nullable=False, metadata={"x": "y"})), False, {"q": "r"})
    assert round_trip(field).equals(field, check_metadata=True)
    schema = pa.schema([field, pa.field("a", pa.dictionary(pa.int8(), pa.string(), ordered=True))], {"k": "v"})
    assert round_trip(schema).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({}),
        pa.table({"a": [1, 2, 3]}).select([]),
        pa.table({"a": pa.chunked_array([], pa.int8())}),
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        pa.table({"a": pa.chunked_array([[1], [], [2, 3]]), "b": pa.chunked_array([["x", "y"], ["z"]])}),
    ],
    ids=["empty", "rows without columns", "no chunks", "equal names", "uneven chunks"],
)
def test_shapes_of_tables(round_trip: Any, table: Any) -> None:
    back = round_trip(table)
    assert back.equals(table)
    assert back.shape == table.shape
    assert [column.num_chunks for column in back.columns] == [column.num_chunks for column in table.columns]


def test_buffers(put: Any) -> None:
    for data in (b"", b"x", b"x" * 10_000):
        stored = put(pa.py_buffer(data))
        back = stored.get()
        assert type(back) is pa.Buffer
        assert back.to_pybytes() == data
        assert not data or stored.holds(back.address, back.size)


arrow_types = st.recursive(
    st.sampled_from([pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.large_binary(), pa.string_view(), pa.null()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([pa.field(f"f{n}", kind) for n, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=5,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Python values that an Arrow type can hold."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        pa.int8(): st.integers(-128, 127),
        pa.float64(): st.floats(allow_nan=False),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(st.characters(codec="utf-8"), max_size=30),
        pa.string_view(): st.text(st.characters(codec="utf-8"), max_size=30),
        pa.large_binary(): st.binary(max_size=30),
        pa.null(): st.none(),
    }
    if kind in plain:
        return st.none() | plain[kind]
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    return st.none() | st.lists(values_of(kind.value_type), min_size=size or 0, max_size=size or 4)


@PROPERTY
@given(data=st.data(), kind=arrow_types)
def test_any_nested_array_and_slice_comes_back(round_trip: Any, data: Any, kind: Any) -> None:
    items = data.draw(st.lists(values_of(kind), max_size=30))
    array = pa.array(items, kind)
    start = data.draw(st.integers(0, len(items)))
    part = array.slice(start, data.draw(st.integers(0, len(items))))
    assert_same(round_trip(part), part)


# Well above 64 KiB, from which on buffers of slices are trimmed.
LARGE = 30_000
TRIMMED = {
    "int64": pa.array(range(LARGE)),
    "with nulls": pa.array([None if n % 3 else n for n in range(LARGE)]),
    "string": pa.array([None if n % 7 == 2 else f"text {n}" for n in range(LARGE)]),
    "large string": pa.array([f"text {n}" for n in range(LARGE)], pa.large_string()),
    "string view": pa.array([f"a text longer than a view {n}" for n in range(LARGE)], pa.string_view()),
    "list": pa.array([[n, None, f"{n}"] for n in map(str, range(LARGE))], pa.list_(pa.string())),
    "fixed-size list": pa.array([None if n % 5 == 1 else [n, n] for n in range(LARGE)], pa.list_(pa.int64(), 2)),
    "struct": pa.array([None if n % 5 == 1 else {"a": n, "b": f"text {n}", "c": [n]} for n in range(LARGE)]),
    "map": pa.array([[(f"key {n}", n)] for n in range(LARGE)], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array([f"word {n % 5}" for n in range(LARGE)]).dictionary_encode(),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([n.to_bytes(16, "big") for n in range(LARGE)], pa.binary(16))
    ),
    "struct in a slice": pa.array([{"s": {"t": f"text {n}"}} for n in range(LARGE)]).slice(13),
}


@pytest.mark.parametrize("name", TRIMMED)
@pytest.mark.parametrize(("start", "length"), [(0, 10), (3, 10), (1001, 100), (20_001, 0), (29_900, 77)])
def test_a_small_slice_does_not_keep_its_parent(put: Any, name: str, start: int, length: int) -> None:
    part = TRIMMED[name].slice(start, length)
    assert part.get_total_buffer_size() > 100_000
    stored = put(part)
    assert stored.nbytes + len(stored.tree) < 12_000
    assert_same(stored.get(), part)


def test_trimmed_slices_of_all_types_nested_in_structs(round_trip: Any) -> None:
    columns = arrays(5000)
    parent = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    ballast = pa.StructArray.from_arrays([parent, pa.array(np.zeros(5000))], ["all", "more"])
    for start in (0, 3, 8, 4001):
        part = ballast.slice(start, 20)
        back = round_trip(part)
        back.validate(full=True)
        assert back.equals(part)


def test_a_large_slice_shares_its_parent(put: Any) -> None:
    parent = pa.array(range(LARGE))
    stored = put({"whole": parent, "most": parent.slice(5, LARGE - 10)})
    assert stored.nbytes == 8 * LARGE
    assert_same(stored.get()["most"], parent.slice(5, LARGE - 10))


def test_chunks_that_share_a_buffer_store_it_once(put: Any) -> None:
    parent = pa.array(range(LARGE))
    chunked = pa.chunked_array([parent.slice(start, 100) for start in range(0, LARGE, 100)])
    stored = put(pa.table({"a": chunked, "b": chunked}))
    assert [len(data) for data in stored.buffers] == [8 * LARGE]
    assert stored.get()["b"].equals(chunked)


@pytest.mark.parametrize("copy", ["never", "always"])
def test_columns_are_not_copied_on_get(put: Any, copy: CopyMode) -> None:
    kinds = {name: array for name, array in arrays(5000).items() if name != "null"}
    for name, array in kinds.items():
        stored = put(array)
        for buffer in stored.get(copy).buffers():
            if buffer is not None and buffer.size > 128:
                assert stored.holds(buffer.address, buffer.size), name


def test_writable_modes_give_mutable_buffers(put: Any) -> None:
    stored = put(pa.array(np.arange(1000)))
    assert not stored.get().buffers()[1].is_mutable
    assert stored.get("on_write").buffers()[1].is_mutable


def test_extension_types_must_be_registered_on_both_sides(put: Any, round_trip: Any) -> None:
    array = pa.ExtensionArray.from_storage(Celsius(3), pa.array(np.arange(1000.0)))
    with pytest.raises(UnsupportedType, match="register_extension_type"):
        put(array)
    assert round_trip(array, allow_pickle=True).type == Celsius(3)
    pa.register_extension_type(Celsius())
    try:
        stored = put(array)
        back = stored.get()
        assert back.type == Celsius(3)
        assert back.type.scale == 3
        assert back.equals(array)
    finally:
        pa.unregister_extension_type("tests.celsius")
    with pytest.raises(UnsupportedType, match=r"tests\.celsius"):
        stored.get()


def test_dates_of_scalars_are_exact(round_trip: Any) -> None:
    scalar = pa.scalar(dt.datetime(2020, 1, 1, 0, 0, 0, 1), pa.timestamp("ns", "UTC"))
    assert round_trip(scalar).equals(scalar)
    assert round_trip(pa.scalar(None, pa.int8())).equals(pa.scalar(None, pa.int8()))


def test_views_are_read_only_until_it_is_certain_that_most_text_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []
    text_bytes = arrow_arrays._text_bytes

    def counted(array: pa.Array) -> int:
        blocks.append(len(array))
        return text_bytes(array)

    monkeypatch.setattr(arrow_arrays, "_text_bytes", counted)
    monkeypatch.setattr(arrow_arrays, "_FIRST_VIEWS", 1000)
    views = pa.array([f"{number:0100}" for number in range(10_000)], pa.string_view())
    assert not arrow_arrays.worth_trimming(views)
    assert blocks == [1000, 2000, 4000]  # 116 bytes a row: half of them are the text of 4,200 rows, and all views
    blocks.clear()
    assert not arrow_arrays.worth_trimming(pa.chunked_array([views.slice(0, 500), views.slice(500)]))
    assert blocks == [500, 1000, 2000, 4000]
    blocks.clear()
    assert arrow_arrays.worth_trimming(views.slice(100, 3000))
    assert blocks == [1000, 2000]
