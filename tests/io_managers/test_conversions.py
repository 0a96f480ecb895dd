"""Values in the form that a reader asks for: equal, and without a copy where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_io.conversions import convert, form_of
from entrepot_io.table_info import Column, table_info

FRAME = pd.DataFrame(
    {"n": np.arange(1000), "x": np.arange(1000) / 2, "s": pd.array([f"text {n}" for n in range(1000)], dtype="str")}
)
STORED: dict[str, Any] = {
    "pandas.DataFrame": FRAME,
    "polars.DataFrame": pl.from_pandas(FRAME),
    "pyarrow.Table": pa.Table.from_pandas(FRAME),
}


@pytest.fixture(scope="module")
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to a store of the module."""
    with entrepot.connect(module_daemon.address, scope="conversions") as connected:
        yield connected


@pytest.fixture(scope="module", params=[*STORED, "entrepot.Collection"])
def stored(request: pytest.FixtureRequest, store: entrepot.Store) -> Any:
    """The same table, as different libraries store it."""
    if request.param != "entrepot.Collection":
        return store.get(store.put(STORED[request.param]))
    builder = store.collection("halves")
    for index in range(2):
        builder.put(STORED["pyarrow.Table"].slice(500 * index, 500), index=index)
    return builder.seal(2)


def as_pandas(value: Any) -> pd.DataFrame:
    if isinstance(value, pl.LazyFrame):
        value = value.collect()
    if isinstance(value, pa.RecordBatchReader):
        value = value.read_all()
    return value if isinstance(value, pd.DataFrame) else value.to_pandas()


@pytest.mark.parametrize(
    "wanted", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.Table, pa.RecordBatchReader], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("columns", [None, ["s", "n"]], ids=["all", "two"])
def test_tables_become_each_other(wanted: type, columns: list[str] | None, stored: Any) -> None:
    form = form_of(wanted)
    assert form is not None
    read = convert(stored, form, columns=columns)
    assert isinstance(read, wanted)
    expected = FRAME if columns is None else FRAME[columns]
    pd.testing.assert_frame_equal(as_pandas(read), expected, check_dtype=False)


@pytest.mark.parametrize("wanted", ["pandas", "polars", "polars.lazy", "arrow", "arrow.reader"])
def test_a_query_plan_is_collected(wanted: str) -> None:
    plan = pl.from_pandas(FRAME).lazy().filter(pl.col("n") < 10)
    read = convert(plan, wanted, columns=["n"])
    assert as_pandas(read)["n"].tolist() == list(range(10))
    assert convert(plan.select("n"), "numpy").shape == (10, 1)


def test_words_of_a_configuration() -> None:
    assert isinstance(convert(FRAME, "polars"), pl.DataFrame)
    assert convert(FRAME, "pandas") is FRAME
    with pytest.raises(InvalidArgument, match="no form 'spark'"):
        convert(FRAME, "spark")


def test_numbers_are_not_copied(store: entrepot.Store) -> None:
    table = store.get(store.put(pa.table({"n": np.arange(10_000)})))
    address = table["n"].chunk(0).buffers()[1].address
    assert convert(table, "pandas")["n"].to_numpy().__array_interface__["data"][0] == address
    assert convert(table, "polars").to_arrow()["n"].chunk(0).buffers()[1].address == address
    frame = store.get(store.put(pd.DataFrame({"n": np.arange(10_000)})))
    address = frame["n"].to_numpy().__array_interface__["data"][0]
    assert convert(frame, "arrow")["n"].chunk(0).buffers()[1].address == address
    assert convert(frame["n"].to_numpy(), "numpy").__array_interface__["data"][0] == address


def test_arrays(store: entrepot.Store) -> None:
    values = np.arange(12).reshape(3, 4)
    assert convert(values, "numpy") is values
    assert convert(pa.array([1, 2, 3]), "numpy").tolist() == [1, 2, 3]
    assert convert(pd.DataFrame({"a": [1.0], "b": [2.0]}), "numpy").tolist() == [[1.0, 2.0]]


def test_what_has_no_such_form_is_said() -> None:
    with pytest.raises(
        UnsupportedType, match=r"a dict cannot be read as pandas\.DataFrame: ask for it as it was stored \[E302\]"
    ):
        convert({"a": 1}, "pandas")
    with pytest.raises(UnsupportedType, match=r"as it was stored, or as numpy\.ndarray \[E302\]"):  # which is possible
        convert(np.arange(3), "polars")
    assert convert(pd.Series([1, 2]), "numpy").tolist() == [1, 2]
    with pytest.raises(InvalidArgument, match="no column 'z', only 'n', 'x', 's'"):
        convert(FRAME, "pandas", columns=["n", "z"])
    with pytest.raises(InvalidArgument, match="is not a table"):
        convert([1], "numpy", columns=["n"])
    assert form_of(int) is None
    assert form_of(Any) is None
    assert form_of("pandas.DataFrame") is None


def test_columns_that_the_library_does_not_have_are_said() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for wanted in ("polars", "polars.lazy", "arrow", "arrow.reader"):
        with pytest.raises(UnsupportedType, match=r"this pandas\.DataFrame cannot be read as .*(uplicate|non-unique)"):
            convert(twice, wanted)
    assert convert(twice, "pandas") is twice


class Prices(pd.DataFrame):
    """As libraries over pandas have their own frames."""

    @property
    def _constructor(self) -> Any:
        return Prices


def test_an_instance_of_a_subclass_is_given_as_it_is() -> None:
    masked = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    records = np.array([(1, 0.5)], dtype=[("n", "i8"), ("x", "f8")]).view(np.recarray)
    for array in (masked, np.matrix([[1, 2]]), records):
        assert convert(array, "numpy") is array
    prices = Prices({"n": [1], "x": [0.5]})
    assert convert(prices, "pandas") is prices
    assert type(convert(prices, "pandas", columns=["x"])) is Prices
    assert convert(prices, "arrow").to_pydict() == {"n": [1], "x": [0.5]}
    assert convert(prices, "polars", columns=["n"]).to_dict(as_series=False) == {"n": [1]}
    batch = pa.record_batch({"n": [1]})
    assert type(convert(batch, "arrow")) is pa.Table, "which a batch is not an instance of"


UNION = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])])
WIDE = pl.DataFrame({"n": [2**100], "s": ["x"]}, schema_overrides={"n": pl.Int128})


@pytest.mark.parametrize("form", ["polars", "polars.lazy"])
@pytest.mark.parametrize(
    "table",
    [
        pa.table([[1], [2]], names=["a", "a"]),
        pa.table({"u": UNION}),
        pa.table({"r": pa.RunEndEncodedArray.from_arrays([2], ["x"])}),
        pa.table({"v": pa.array([[1], [2]], pa.list_view(pa.int64()))}),
    ],
    ids=["columns of one name", "union", "run-end encoded", "list view"],
)
def test_what_polars_refuses_is_an_unsupported_type(table: pa.Table, form: str) -> None:
    with pytest.raises(UnsupportedType, match=r"this pyarrow\.Table cannot be read as polars"):
        convert(table, form)


@pytest.mark.parametrize("form", ["arrow", "arrow.reader", "pandas"])
def test_numbers_that_arrow_lacks(form: str) -> None:
    with pytest.raises(UnsupportedType, match=r"this polars\.DataFrame cannot be read as"):
        convert(WIDE, form)


def test_extension_types_that_pandas_has_no_dtype_for() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2))
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    texts = pa.array(['{"a": 1}', "1", None], pa.json_())
    table = pa.table({"t": tensors, "f": flags, "j": texts, "u": pa.array([b"0123456789abcdef"] * 3, pa.uuid())})
    frame, own = convert(table, "pandas"), table.to_pandas()
    assert [each.tolist() for each in frame["t"]] == [each.tolist() for each in own["t"]] == tensors.storage.to_pylist()
    assert frame["f"].tolist()[:2] == [1, 0]
    assert frame["j"].tolist()[:2] == ['{"a": 1}', "1"]
    assert frame["u"].tolist() == own["u"].tolist()
    assert convert(table.select(["t"]), "numpy")[1, 0].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_a_period_of_pandas_stays_one() -> None:
    frame = pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M")})
    assert convert(pa.Table.from_pandas(frame), "pandas")["p"].dtype == frame["p"].dtype


def test_arrow_arrays_with_nulls() -> None:
    array = convert(pa.array([1, None, 3]), "numpy")
    assert [array[0], array[2]] == [1.0, 3.0]
    assert np.isnan(array[1])


def test_what_is_displayed_never_fails(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(pl.DataFrame):
        """A frame that does not say how many rows it has."""

        @property
        def height(self) -> int:
            raise RuntimeError("no height\nof this frame")

    Broken.__module__, Broken.__qualname__ = "polars", "DataFrame"
    monkeypatch.setattr(pl, "DataFrame", Broken)
    assert table_info(Broken({"n": [1]}), 5) is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "Entrepot: a polars.DataFrame is not described on the pages: RuntimeError: no height"
    )


def test_long_names_and_types_are_cut() -> None:
    deep = pa.struct([pa.field("f" * 100 + str(number), pa.int64()) for number in range(100)])
    info = table_info(pa.table({"c" * 1_000_000: pa.array([None], deep)}), 5)
    assert info is not None
    assert (len(info.columns[0].name), len(info.columns[0].type)) == (255, 1000)
    assert len(info.head_columns[0]) == 80


def test_addresses_of_python_objects_are_no_values() -> None:
    frame = pl.DataFrame({"n": [1], "o": [object()]}, schema_overrides={"o": pl.Object})
    for wanted in ("arrow", "arrow.reader", "pandas"):
        with pytest.raises(UnsupportedType, match="'o' has Python objects"):
            convert(frame, wanted)
    assert convert(frame, "arrow", columns=["n"]).to_pydict() == {"n": [1]}
    assert convert(frame, "polars") is frame


def test_a_table_in_brief(stored: Any) -> None:
    info = table_info(stored, 2)
    assert info is not None
    assert info.rows == 1000
    assert [column.name for column in info.columns] == ["n", "x", "s"]
    assert info.head == [["0", "0.0", "text 0"], ["1", "0.5", "text 1"]]
    assert info.head_markdown().splitlines()[2] == "| 0 | 0.0 | text 0 |"


def test_what_is_displayed_is_bounded_and_escaped() -> None:
    wide = pa.table({f"c{number}": ["<b>|" + "x" * 1000] for number in range(60)})
    info = table_info(wide, 5)
    assert info is not None
    assert (len(info.columns), len(info.head[0])) == (60, 50)
    assert len(info.head[0][0]) == 80
    assert "&lt;b>\\|xxx" in info.head_markdown()
    assert table_info(pa.table({"n": pa.array([], pa.int8())}), 5) == info_of_nothing()
    assert table_info([1, 2], 5) is None


def info_of_nothing() -> Any:
    from entrepot_io.table_info import TableInfo

    return TableInfo(0, [Column("n", "int8")], [], ["n"])
