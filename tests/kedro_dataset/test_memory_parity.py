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
from entrepot_kedro import EntrepotDataset, catalog_config
from entrepot_kedro.hooks import hooks
from entrepot_kedro.values.transcoding import convert_to_form
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


def catalog(**entries: Any) -> DataCatalog:
    return DataCatalog.from_config(catalog_config(CATALOG | entries, run_id="run-1"))


# --- Kedro's check of inputs


def run_params() -> dict[str, Any]:
    return {"run_id": "run-1", "pipeline_names": None}


def count_rows(frame: Any) -> int:
    return len(frame)


def test_a_mistyped_input_fails_before_the_first_node() -> None:
    job = pipeline([node(frame, None, "frame", name="first"), node(count_rows, "fraem", "n", name="use")])
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) \{'fraem'\} not found in the DataCatalog"):
        hooks.before_pipeline_run(run_params(), job, catalog())  # before the first node runs


def test_existing_inputs_pass() -> None:
    job = pipeline([node(count_rows, "frame", "n", name="use"), node(count_rows, "own", "m", name="own")])
    run_catalog = catalog(own={"type": "kedro.io.MemoryDataset", "data": [1]})
    with pytest.raises(ValueError, match=r"\{'frame'\} not found"):  # the control
        hooks.before_pipeline_run(run_params(), job, run_catalog)
    run_catalog["frame"].save([1, 2, 3])
    hooks.before_pipeline_run(run_params(), job, run_catalog)
    assert run_catalog["frame"].load() == [1, 2, 3]


def test_explicit_entries_are_checked_at_load() -> None:
    """As in Kedro: a dataset with its own catalog entry is checked only when it is loaded."""
    job = pipeline([node(count_rows, "kept", "n", name="use")])
    run_catalog = catalog(kept={"type": "entrepot_kedro.EntrepotDataset", "session": ""})
    hooks.before_pipeline_run(run_params(), job, run_catalog)
    with pytest.raises(DatasetError):
        run_catalog["kept"].load()


# --- values that cannot be serialized


def make_closure() -> Callable[[int], int]:
    increment = 5
    return lambda number: number + increment


def add(adder: Callable[[int], int]) -> int:
    return adder(2)


CLOSURE_PIPELINE = pipeline([node(make_closure, None, "adder", name="make"), node(add, "adder", "sum", name="add")])


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
def test_a_closure_works_in_one_process(runner: Any) -> None:
    assert runner().run(CLOSURE_PIPELINE, catalog())["sum"].load() == 7


def test_a_closure_is_released_after_its_last_consumer() -> None:
    run_catalog = catalog()
    SequentialRunner().run(CLOSURE_PIPELINE, run_catalog)
    assert not run_catalog["adder"].exists()


def test_a_closure_is_refused_across_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", "fork")
    shared = SharedMemoryDataCatalog.from_config(catalog_config(CATALOG, run_id="run-1"))
    with pytest.raises(DatasetError) as error:
        ParallelRunner(max_workers=1).run(CLOSURE_PIPELINE, shared)
    assert "adder" in str(error.value)


def test_a_closure_in_a_persistent_session_is_refused() -> None:
    with pytest.raises(DatasetError) as error:
        EntrepotDataset(name="adder", session="").save(make_closure())
    assert isinstance(error.value.__cause__, UnsupportedType)


# --- writing to an input


def write_into(values: Any) -> int:
    values[0] = 7
    return 1


def test_writing_to_an_input_logs_the_copy_setting(caplog: pytest.LogCaptureFixture) -> None:
    (failing_node,) = pipeline([node(write_into, "values", "n", name="write")]).nodes
    run_catalog = catalog(values={"type": "entrepot_kedro.EntrepotDataset", "copy_mode": "assign"})
    run_catalog["values"].save(np.arange(1000))
    with pytest.raises(ValueError, match="read-only") as error:
        write_into(run_catalog["values"].load())
    hooks.on_node_error(error.value, failing_node)
    (message,) = [record.getMessage() for record in caplog.records if "write" in record.getMessage()]
    assert 'copy="on_write"' in message
    assert "copy: on_write" in message
    caplog.clear()
    hooks.on_node_error(ValueError("something else"), failing_node)
    assert not caplog.records


# --- transcoding


def frame() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(1000), "s": ["a", "b"] * 500})


def summarize(table: Any) -> list[Any]:
    return [type(table).__module__.split(".")[0], len(table), int(table["x"].sum())]


TRANSCODING_PIPELINE = pipeline(
    [
        node(frame, None, "cars@pandas", name="make"),
        node(summarize, "cars@polars", "in_polars", name="polars"),
        node(summarize, "cars@pandas", "in_pandas", name="pandas"),
    ]
)


@pytest.mark.parametrize("kind", [SequentialRunner, ThreadRunner])
def test_a_transcoded_dataset_is_one_value_in_each_readers_form(kind: Any) -> None:
    run_catalog = catalog()
    hooks.before_pipeline_run(run_params(), TRANSCODING_PIPELINE, run_catalog)
    outputs = kind().run(TRANSCODING_PIPELINE, run_catalog)
    assert outputs["in_polars"].load() == ["polars", 1000, 499_500]
    assert outputs["in_pandas"].load() == ["pandas", 1000, 499_500]
    store = scope_store(None, "tests").session("kedro/run-1")
    assert store.exists(store.derive(kedro_key("cars")))
    hooks.after_pipeline_run(run_params(), TRANSCODING_PIPELINE, run_catalog)
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
    converted = convert_to_form(value, form)
    assert type(converted).__module__.split(".")[0] == kind
    assert len(converted) == 2


def test_memory_datasets_have_no_transcoding() -> None:
    """Control for the test above: in memory, the two names are separate values."""
    memory_catalog = DataCatalog({"cars@pandas": MemoryDataset(), "cars@polars": MemoryDataset()})
    with pytest.raises(DatasetError):
        SequentialRunner().run(TRANSCODING_PIPELINE, memory_catalog)
