"""With a catch-all pattern, whatever works with Kedro's in-memory datasets works unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from entrepot.errors import UnsupportedType
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_kedro import EntrepotDataset
from entrepot_kedro.hooks import hooks
from entrepot_kedro.transcoding import as_form
from kedro.io import DataCatalog, DatasetError, MemoryDataset, SharedMemoryDataCatalog
from kedro.pipeline import node, pipeline
from kedro.runner import ParallelRunner, SequentialRunner, ThreadRunner

CATALOG = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}


@pytest.fixture(autouse=True)
def _environment(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_SCOPE", "tests")
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)
    yield
    close_all()


def catalog(**more: Any) -> DataCatalog:
    return DataCatalog.from_config(CATALOG | more, save_version="run-1")


# --- Kedro's check of inputs


def params() -> dict[str, Any]:
    return {"run_id": "run-1", "pipeline_names": None}


def use(frame: Any) -> int:
    return len(frame)


def test_a_mistyped_input_fails_before_the_first_node() -> None:
    job = pipeline([node(frame, None, "frame", name="first"), node(use, "fraem", "n", name="use")])
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) \{'fraem'\} not found in the DataCatalog"):
        hooks.before_pipeline_run(params(), job, catalog())  # before the first node runs


def test_inputs_that_are_there_pass() -> None:
    job = pipeline([node(use, "frame", "n", name="use"), node(use, "own", "m", name="own")])
    found = catalog(own={"type": "kedro.io.MemoryDataset", "data": [1]})
    found["frame"].save([1, 2, 3])
    hooks.before_pipeline_run(params(), job, found)


def test_a_name_that_a_user_wrote_into_the_catalog_is_left_to_its_load() -> None:
    """As in Kedro: a dataset with its own catalog entry is checked only when it is loaded."""
    job = pipeline([node(use, "kept", "n", name="use")])
    hooks.before_pipeline_run(params(), job, catalog(kept={"type": "entrepot_kedro.EntrepotDataset", "session": ""}))


# --- values that cannot be serialized


def make_adder() -> Callable[[int], int]:
    much = 5
    return lambda number: number + much


def add(adder: Callable[[int], int]) -> int:
    return adder(2)


ADDING = pipeline([node(make_adder, None, "adder", name="make"), node(add, "adder", "sum", name="add")])


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
def test_a_closure_works_in_one_process(runner: Any) -> None:
    assert runner().run(ADDING, catalog())["sum"].load() == 7


def test_a_closure_is_let_go_after_its_last_consumer() -> None:
    found = catalog()
    SequentialRunner().run(ADDING, found)
    assert not found["adder"].exists()


def test_a_closure_that_another_process_would_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", "fork")
    shared = SharedMemoryDataCatalog.from_config(CATALOG, save_version="run-1")
    with pytest.raises(DatasetError) as error:
        ParallelRunner(max_workers=1).run(ADDING, shared)
    assert "adder" in str(error.value)


def test_a_closure_that_is_to_outlive_the_run_is_refused() -> None:
    with pytest.raises(DatasetError) as error:
        EntrepotDataset(name="adder", session="").save(make_adder())
    assert isinstance(error.value.__cause__, UnsupportedType)


# --- writing to an input


def write(values: Any) -> int:
    values[0] = 7
    return 1


def test_who_writes_into_an_input_is_told_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    (job,) = pipeline([node(write, "values", "n", name="write")]).nodes
    found = catalog()
    found["values"].save(np.arange(1000))
    with pytest.raises(ValueError, match="read-only") as error:
        write(found["values"].load())
    hooks.on_node_error(error.value, job)
    (told,) = [record.getMessage() for record in caplog.records if "write" in record.getMessage()]
    assert 'copy="on_write"' in told
    assert "copy: on_write" in told
    caplog.clear()
    hooks.on_node_error(ValueError("something else"), job)
    assert not caplog.records


# --- transcoding


def frame() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(1000), "s": ["a", "b"] * 500})


def counted(found: Any) -> list[Any]:
    return [type(found).__module__.split(".")[0], len(found), int(found["x"].sum())]


TRANSCODED = pipeline(
    [
        node(frame, None, "cars@pandas", name="make"),
        node(counted, "cars@polars", "in_polars", name="polars"),
        node(counted, "cars@pandas", "in_pandas", name="pandas"),
    ]
)


@pytest.mark.parametrize("kind", [SequentialRunner, ThreadRunner])
def test_a_transcoded_dataset_is_one_value_in_each_readers_form(kind: Any) -> None:
    found = catalog()
    hooks.before_pipeline_run(params(), TRANSCODED, found)
    outputs = kind().run(TRANSCODED, found)
    assert outputs["in_polars"].load() == ["polars", 1000, 499_500]
    assert outputs["in_pandas"].load() == ["pandas", 1000, 499_500]
    store = scope_store(None, "tests").session("kedro/run-1")
    assert store.exists(store.derive(kedro_key("cars")))
    hooks.after_pipeline_run(params(), TRANSCODED, found)
    assert not store.exists(store.derive(kedro_key("cars")))


@pytest.mark.parametrize(
    ("value", "form", "kind"),
    [
        (pl.DataFrame({"x": [1, 2]}), "pandas", "pandas"),
        (pl.DataFrame({"x": [1, 2]}), "arrow", "pyarrow"),
        (pd.DataFrame({"x": [1, 2]}), "pyarrow", "pyarrow"),
        (pd.DataFrame({"x": [1, 2]}), "numpy", "numpy"),
        (pl.DataFrame({"x": [1, 2]}).to_arrow(), "polars", "polars"),
        (pl.DataFrame({"x": [1, 2]}).to_arrow(), "pandas", "pandas"),
        (np.ones((2, 1)), "pandas", "pandas"),
        (pd.DataFrame({"x": [1, 2]}), "spark", "pandas"),
        ([1, 2], "pandas", "builtins"),
    ],
)
def test_forms(value: Any, form: str, kind: str) -> None:
    found = as_form(value, form)
    assert type(found).__module__.split(".")[0] == kind
    assert len(found) == 2


def test_stock_kedro_has_no_such_value() -> None:
    """Control for the test above: in memory, the two names are separate values."""
    found = DataCatalog({"cars@pandas": MemoryDataset(), "cars@polars": MemoryDataset()})
    with pytest.raises(DatasetError):
        SequentialRunner().run(TRANSCODED, found)
