"""Datasets without a catalog entry go through the store, if the project's allow-list says so."""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path
from typing import Any

import kedro_runs as runs
import numpy as np
import pytest
from entrepot.errors import InvalidArgument
from entrepot_io.connections import scope_store
from entrepot_kedro import EntrepotDataset
from entrepot_kedro.allow_list import AllowList, find_allow_list
from kedro.framework.project import pipelines as project_pipelines
from kedro.io import DatasetError, MemoryDataset, SharedMemoryDataset
from kedro.pipeline import node, pipeline
from kedro.runner import ParallelRunner, SequentialRunner, ThreadRunner

pytestmark = pytest.mark.usefixtures("in_scope_tests")

SIZE = 100_000


@pytest.fixture
def context(tmp_path: Path) -> Any:
    return project(tmp_path, 'intermediates:\n  include: ["*"]\n  exclude: ["scratch.*"]\n')


def project(folder: Path, text: str, environment: str = "base") -> Any:
    for name in ("base", "local"):
        (folder / name).mkdir(exist_ok=True)
    (folder / environment / "entrepot.yml").write_text(text)
    return runs.Context(str(folder))


def make(start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start, SIZE)


def double(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values * 2


def total(values: np.ndarray[Any, Any]) -> int:
    return int(values.sum())


JOB = pipeline(
    [
        node(make, None, "raw", name="make"),
        node(double, "raw", "scratch.doubled", name="double"),
        node(total, "scratch.doubled", "total", name="total"),
    ]
)
TOTAL = SIZE * (SIZE - 1)


def remaining_objects() -> dict[str, int]:
    return {info.session: info.objects for info in scope_store(None, "tests").sessions() if info.session}


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
def test_the_allow_list_says_what_goes_through_the_store(runner: Any, context: Any) -> None:
    outputs, catalog = runs.run(JOB, context=context, runner=runner())
    assert isinstance(catalog["raw"], EntrepotDataset)
    assert isinstance(catalog["scratch.doubled"], MemoryDataset)
    assert outputs["total"].load() == TOTAL
    assert not catalog["raw"].exists(), "released after its last consumer"
    del outputs, catalog
    gc.collect()
    assert remaining_objects() == {}


def test_without_an_allow_list_everything_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "local").mkdir()
    _, catalog = runs.run(JOB, context=runs.Context(str(tmp_path)))
    assert isinstance(catalog["raw"], MemoryDataset)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes_share_by_the_store(context: Any, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", start)
    outputs, catalog = runs.run(JOB, context=context, runner=ParallelRunner(max_workers=1))
    assert isinstance(catalog["raw"], EntrepotDataset)
    assert isinstance(catalog["scratch.doubled"], SharedMemoryDataset)
    assert outputs["total"].load() == TOTAL


def test_entries_and_patterns_of_the_catalog_come_first(context: Any) -> None:
    config = {"raw": {"type": "kedro.io.MemoryDataset"}, "tot{rest}": {"type": "kedro.io.MemoryDataset"}}
    _, catalog = runs.run(JOB, config, context=context)
    assert {type(catalog[name]) for name in JOB.datasets()} == {MemoryDataset}


def test_kedros_check_of_inputs_stays(context: Any) -> None:
    job = pipeline([node(total, "raww", "total", name="total")])
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) \{'raww'\} not found in the DataCatalog"):
        runs.run(job, context=context)
    assert remaining_objects() == {}


def test_parameters_stay_kedros(context: Any) -> None:
    job = pipeline([node(make, "params:start", "raw", name="make")])
    with pytest.raises(ValueError, match=r"\{'params:start'\} not found"):
        runs.run(job, context=context)
    outputs, _ = runs.run(job, {"params:start": {"type": "kedro.io.MemoryDataset", "data": 5}}, context=context)
    assert len(outputs["raw"].load()) == SIZE - 5


def make_closure() -> Any:
    increment, lock = 5, threading.Lock()

    def add(number: int) -> int:
        with lock:
            return number + increment

    return add


def test_a_closure_stays_in_its_process_without_a_warning(context: Any, caplog: pytest.LogCaptureFixture) -> None:
    job = pipeline(
        [node(make_closure, None, "adder", name="make"), node(lambda add: add(2), "adder", "sum", name="add")]
    )
    with caplog.at_level(logging.WARNING):
        outputs, catalog = runs.run(job, context=context)
    assert isinstance(catalog["adder"], EntrepotDataset)
    assert outputs["sum"].load() == 7
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_policys_settings_and_dataset_arguments(tmp_path: Path) -> None:
    context = project(tmp_path, "intermediates:\n  dataset: {session: kept, copy: on_write}\n", "local")
    _, catalog = runs.run(JOB, context=context)
    raw: Any = catalog["raw"]
    assert (raw.session.name, raw.copy_mode) == ("kept", "on_write")
    assert raw.load()[1] == 1


# --- where the allow-list is found


def test_the_variable_takes_precedence(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_INTERMEDIATES", "raw, model_*")
    assert find_allow_list(context) == AllowList(("raw", "model_*"))
    monkeypatch.setenv("ENTREPOT_INTERMEDIATES", "")
    assert find_allow_list(context) == AllowList(())


def test_settings_of_the_project(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kedro.framework import project as kedro_project

    class Settings:
        ENTREPOT_INTERMEDIATES = {"exclude": "scratch_*"}  # noqa: RUF012 (as in settings.py)

    monkeypatch.setattr(kedro_project, "settings", Settings())
    assert find_allow_list(context) == AllowList(("*",), ("scratch_*",))


def test_transcoded_names_count_without_their_form() -> None:
    allow_list = AllowList(("cars",))
    assert allow_list.allows("cars@pandas")
    assert not allow_list.allows("carsx@pandas")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intermediates: 7", "intermediates in entrepot.yml must be a pattern or a list of patterns, .* not 7"),
        ("intermediates: [1]", "must be a pattern or a list of patterns"),
        ("intermediates: {only: a}", "has the key 'only': only include, exclude, dataset are possible"),
        ("intermediates: {include: {a: b}}", "include of intermediates in entrepot.yml must be"),
        ("intermediates: {dataset: [copy]}", "dataset must be a mapping of EntrepotDataset's arguments"),
        ("intermediates: {dataset: {versioned: true}}", "dataset must not have 'versioned'"),
        (
            "version: 1\nfailover: []",
            "has the key 'version'; a policy in .* needs another name, such as .*/policy.yaml",
        ),
        ("datasets: ['*']", "with the key 'intermediates', and has the key 'datasets'"),
    ],
)
def test_a_malformed_allow_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        find_allow_list(project(tmp_path, text))


def test_a_pattern_that_matches_nothing_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(project_pipelines, "other", pipeline([node(make, None, "elsewhere", name="elsewhere")]))
    context = project(tmp_path, "intermediates: [raw, 'totl*', elsewhere]\n")
    with caplog.at_level(logging.WARNING):
        runs.run(JOB, context=context)
    assert "the pattern 'totl*' of the allow-list matches no dataset of this project's pipelines" in caplog.text
    assert "'elsewhere'" not in caplog.text
    assert "'raw'" not in caplog.text


def test_wrong_arguments_fail_before_the_first_node(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="'raw' must only contain arguments valid for"):
        runs.run(JOB, context=project(tmp_path, "intermediates: {dataset: {colour: red}}"))
