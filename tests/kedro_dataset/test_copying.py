"""Kedro's contract of in-memory datasets: a node may modify its input, and no other node sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from entrepot.errors import InvalidArgument
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog, DatasetError, MemoryDataset
from kedro.pipeline import node, pipeline
from kedro.runner import SequentialRunner, ThreadRunner

pytestmark = pytest.mark.usefixtures("in_scope_tests")

ROWS = 10_000


def make_frame() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(ROWS), "day": pd.date_range("2026-01-01", periods=ROWS)})


def make_array() -> np.ndarray[Any, Any]:
    return np.arange(ROWS)


def make_mapping() -> dict[str, Any]:
    return {"weights": np.arange(ROWS), "names": ["a"]}


def write_frame(frame: pd.DataFrame) -> int:
    frame.loc[0, "x"] = 7
    frame["new"] = 1
    return int(frame["x"].iloc[0])


def write_array(values: np.ndarray[Any, Any]) -> int:
    values += 7
    return int(values[0])


def write_mapping(mapping: dict[str, Any]) -> int:
    mapping["weights"][0] = 7
    mapping["names"].append("b")
    return int(mapping["weights"][0])


def read_frame(frame: pd.DataFrame, written: int) -> list[Any]:
    return [int(frame["x"].iloc[0]), list(frame.columns), written]


def read_array(values: np.ndarray[Any, Any], written: int) -> list[Any]:
    return [int(values[0]), written]


def read_mapping(mapping: dict[str, Any], written: int) -> list[Any]:
    return [int(mapping["weights"][0]), mapping["names"], written]


CASES: list[tuple[Callable[..., Any], ...]] = [
    (make_frame, write_frame, read_frame),
    (make_array, write_array, read_array),
    (make_mapping, write_mapping, read_mapping),
]


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
@pytest.mark.parametrize("steps", CASES, ids=["frame", "array", "mapping"])
def test_a_node_may_modify_its_input_as_in_memory(runner: Any, steps: tuple[Callable[..., Any], ...]) -> None:
    make, write, read = steps
    job = pipeline(
        [
            node(make, None, "value", name="make"),
            node(write, "value", "written", name="write"),
            node(read, ["value", "written"], "seen", name="read"),
        ]
    )
    config = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}
    stored = runner().run(job, DataCatalog.from_config(catalog_config(config, run_id="run-1")))["seen"].load()
    in_memory = runner().run(job, DataCatalog({name: MemoryDataset() for name in job.datasets()}))["seen"].load()
    assert stored == in_memory


def anonymous_bytes() -> int:
    """Memory of this process that is in no file, and so not the store's: pages copied at a write are."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("Anonymous:"))
    return int(size) << 10


def test_only_what_is_written_to_is_copied() -> None:
    dataset = EntrepotDataset(name="values")
    dataset.save(np.ones(4 << 20))
    before = anonymous_bytes()
    nodes_own = dataset.load()
    assert nodes_own.sum() == 4 << 20
    assert anonymous_bytes() - before < 4 << 20, "32 MiB were read"
    nodes_own[0] = 7
    assert anonymous_bytes() - before < 8 << 20
    nodes_own += 1
    assert anonymous_bytes() - before >= 28 << 20, "all was written to"
    assert dataset.load()[0] == 1


def test_writing_after_saving_does_not_change_what_was_saved() -> None:
    values = make_array()
    dataset = EntrepotDataset(name="values")
    dataset.save(values)
    values[0] = 7
    assert dataset.load()[0] == 0


@pytest.mark.parametrize("setting", [{"copy": "never"}, {"copy_mode": "assign"}])
def test_views_refuse_writes(setting: dict[str, Any]) -> None:
    dataset = EntrepotDataset(name="value", **setting)
    dataset.save(make_array())
    with pytest.raises(ValueError, match="read-only"):
        dataset.load()[0] = 7
    dataset.save(make_frame())
    with pytest.raises(ValueError, match="read-only"):
        dataset.load().loc[0, "x"] = 7


def test_the_variable_counts_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_COPY", "never")
    dataset = EntrepotDataset(name="value")
    dataset.save(make_array())
    assert not dataset.load().flags.writeable


def test_versioned_values_are_the_nodes_own() -> None:
    config = {"value": {"type": "entrepot_kedro.EntrepotDataset", "versioned": True}}
    DataCatalog.from_config(catalog_config(config), save_version="v1")["value"].save(make_frame())
    reader = DataCatalog.from_config(catalog_config(config), save_version="v2")["value"]
    mine = reader.load()
    mine.loc[0, "x"] = 7
    assert (mine.loc[0, "x"], reader.load().loc[0, "x"]) == (7, 0)


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"copy \('never'\) and copy_mode \('assign'\) say the same"):
        EntrepotDataset(name="value", copy="never", copy_mode="assign")
    with pytest.raises(InvalidArgument, match="copy_mode must be one of 'assign', 'copy', 'deepcopy', not 'none'"):
        EntrepotDataset(name="value", copy_mode="none")
    config = {"value": {"type": "entrepot_kedro.EntrepotDataset", "copy_mode": "none"}}
    with pytest.raises(DatasetError, match="copy_mode must be one of"):
        DataCatalog.from_config(catalog_config(config))["value"]
