"""``load_args`` and ``save_args`` of a catalog entry, and previews."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument
from entrepot.phrases import human_bytes
from entrepot_io.connections import close_all
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog, DatasetError

FRAME = pd.DataFrame({"n": np.arange(100), "price": np.arange(100) / 2})


@pytest.fixture(autouse=True)
def _own_store(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    yield
    close_all()


def entry(**load_args: Any) -> DataCatalog:
    return DataCatalog.from_config(
        catalog_config({"x": {"type": "entrepot_kedro.EntrepotDataset", "load_args": load_args}})
    )


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("pandas", pd.DataFrame),
        ("polars", pl.DataFrame),
        ("polars.lazy", pl.LazyFrame),
        ("arrow", pa.Table),
        ("arrow.reader", pa.RecordBatchReader),
        ("numpy", np.ndarray),
    ],
)
def test_a_table_in_the_form_that_the_catalog_asks_for(form: str, kind: type) -> None:
    catalog = entry(**{"as": form})
    catalog.save("x", FRAME)
    assert isinstance(catalog.load("x"), kind)


@pytest.mark.parametrize(
    ("form", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("arrow", pa.Table), ("numpy", np.ndarray)]
)
@pytest.mark.parametrize(
    "make", [lambda: FRAME, lambda: pl.from_pandas(FRAME).lazy(), lambda: pa.Table.from_pandas(FRAME).to_reader()]
)
def test_a_table_is_stored_in_the_form_that_the_catalog_asks_for(make: Any, form: str, kind: type) -> None:
    dataset = EntrepotDataset(name="x", save_args={"as": form})
    dataset.save(make())
    stored: Any = EntrepotDataset(name="x").load()
    assert (type(stored), len(stored)) == (kind, len(FRAME))


def test_columns_that_are_stored() -> None:
    dataset = EntrepotDataset(name="x", save_args={"columns": ["price"]})
    dataset.save(FRAME)
    assert list(dataset.load().columns) == ["price"]
    dataset.save(pl.from_pandas(FRAME).lazy())
    assert isinstance(dataset.load(), pl.DataFrame), "a plan is computed once, by whoever saves it"
    dataset.save(pa.Table.from_pandas(FRAME).to_reader())
    assert dataset.load().column_names == ["price"]
    with pytest.raises(DatasetError, match="no column 'price', only 'n'"):
        dataset.save(FRAME[["n"]])
    with pytest.raises(DatasetError, match="is not a table"):
        dataset.save(lambda: None)  # and it is not kept in this process instead
    assert dataset.load().column_names == ["price"], "what cannot be saved replaces nothing"


def test_columns() -> None:
    catalog = entry(columns=["price"])
    catalog.save("x", FRAME)
    assert list(catalog.load("x").columns) == ["price"]
    catalog = entry(columns=["cost"], **{"as": "polars"})
    catalog.save("x", FRAME)
    with pytest.raises(DatasetError, match="no column 'cost', only 'n', 'price'"):
        catalog.load("x")
    catalog.save("x", "text")
    with pytest.raises(DatasetError, match="is not a table"):
        catalog.load("x")


def test_columns_of_pandas_whose_labels_are_integers() -> None:
    catalog = entry(columns=[1, 0])
    catalog.save("x", pd.DataFrame({0: [1, 2], 1: [3, 4], "2": [5, 6]}))
    assert list(catalog.load("x").columns) == [1, 0]
    catalog = entry(columns=[2])
    catalog.save("x", pd.DataFrame({"2": [5, 6]}))
    with pytest.raises(DatasetError, match="no column 2, only '2'"):
        catalog.load("x")


def test_a_reader_that_stays_in_its_process_is_no_table() -> None:
    """Not stored, as it can be read only once."""
    catalog = entry(**{"as": "pandas"})
    catalog.save("x", pa.Table.from_pandas(FRAME).to_reader())
    with pytest.raises(DatasetError, match=r"cannot be read as pandas\.DataFrame.*save_args: \{as: arrow\}"):
        catalog.load("x")


@pytest.mark.parametrize(
    ("load_args", "message"),
    [
        ({"as": "spark"}, "as must be one of pandas, polars"),
        ({"as": ["polars"]}, r"as must be one of pandas, polars.* not \['polars'\]"),
        ({"form": "pandas"}, "no argument 'form', only as and columns"),
        ({"columns": "price"}, "columns must be a list of names or of integer labels, not 'price'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_catalog(load_args: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        EntrepotDataset(name="x", load_args=load_args)


def test_a_preview_has_rows_schema_and_sizes() -> None:
    dataset = EntrepotDataset(name="x", load_args={"columns": ["price"], "as": "polars.lazy"})
    assert dataset.preview() == {}
    dataset.save(FRAME)
    preview = dataset.preview(2)
    nbytes = preview.pop("nbytes")
    assert 1600 <= nbytes < 3000
    assert preview == {
        "index": [0, 1, "size"],
        "columns": ["price: float64"],
        "data": [["0.0"], ["0.5"], [f"100 rows x 1 columns, {human_bytes(nbytes)}"]],
        "schema": {"price": "float64"},
        "rows": 100,
    }
    assert inspect.signature(dataset.preview).return_annotation.__name__ == "TablePreview"


def test_a_preview_of_columns_that_share_a_name() -> None:
    dataset = EntrepotDataset(name="x")
    dataset.save(pd.DataFrame([[1, 2.5]], columns=["<b>", "<b>"]))
    preview = dataset.preview()
    assert preview["columns"] == ["<b>: int64", "<b>: float64"], "it is for the page to escape them"
    assert preview["data"][-1][0].startswith("1 rows x 2 columns, ")


@pytest.mark.parametrize("nrows", ["5", -1, None])
def test_a_preview_of_what_is_no_number_of_rows(nrows: Any) -> None:
    dataset = EntrepotDataset(name="x")
    dataset.save(FRAME)
    with pytest.raises(InvalidArgument, match="nrows of a preview must be a number from 0 on"):
        dataset.preview(nrows)


def test_a_preview_of_another_value_has_type_and_sizes() -> None:
    dataset = EntrepotDataset(name="y")
    dataset.save(np.ones((1000, 2)))
    preview = dataset.preview()
    assert preview["columns"] == ["type", "size", "shape", "dtype"]
    assert preview["data"] == [["numpy.ndarray", "15.6 KiB", "1000 x 2", "float64"]]
    dataset.save({"not": "a table"})
    assert dataset.preview()["data"][0][0] == "dict"
    dataset.save(lambda: 1)
    assert dataset.preview() == {}, "it cannot be stored"
