"""The dataset under Kedro's own runners, in this process and its forks."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, cast

import entrepot
import numpy as np
import pandas as pd
import pytest
from entrepot.errors import ObjectExists, ObjectNotFound, StoreUnavailable
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_kedro import EntrepotDataset, EntrepotParallelRunner, catalog_config
from entrepot_kedro.hooks import EntrepotHooks
from kedro.framework.hooks.manager import _create_hook_manager
from kedro.io import AbstractDataset, DataCatalog, DatasetError, SharedMemoryDataCatalog
from kedro.pipeline import node, pipeline
from kedro.runner import AbstractRunner, ParallelRunner, SequentialRunner, ThreadRunner
from value_memory_tries import until_nothing_is_refused

pytestmark = pytest.mark.usefixtures("in_scope_tests")

SCOPE = "tests"
CATALOG = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}


class Model:
    """A fitted model like scikit-learn's: plain attributes and arrays."""

    def __init__(self, weights: np.ndarray[Any, Any], note: str) -> None:
        self.weights, self.note = weights, note


def make() -> tuple[pd.DataFrame, int]:
    frame = pd.DataFrame({"x": np.arange(50_000), "y": np.linspace(0, 1, 50_000), "name": ["a", "b"] * 25_000})
    return frame, os.getpid()


def features(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    return cast("np.ndarray[Any, Any]", frame[["x", "y"]].to_numpy())


def train(matrix: np.ndarray[Any, Any]) -> Model:
    return Model(matrix.sum(axis=0), "fitted")


def report(frame: pd.DataFrame, matrix: np.ndarray[Any, Any], model: Model, producer: int) -> dict[str, Any]:
    return {
        "columns": list(frame.columns),
        "dtypes": [str(dtype) for dtype in frame.dtypes],
        "sum": float(frame["x"].sum()),
        "matrix": [str(matrix.dtype), *matrix.shape],
        "writeable": bool(matrix.flags.writeable),
        "model": [type(model).__name__, model.note, *model.weights.tolist()],
        "processes": [producer, os.getpid()],
    }


JOB = pipeline(
    [
        node(make, None, ["frame", "producer"], name="make"),
        node(features, "frame", "matrix", name="features"),
        node(train, "matrix", "model", name="train"),
        node(report, ["frame", "matrix", "model", "producer"], "report", name="report"),
    ]
)


def run(runner: AbstractRunner, config: dict[str, Any] = CATALOG, save_version: str = "run-1") -> dict[str, Any]:
    catalog_class = SharedMemoryDataCatalog if isinstance(runner, ParallelRunner) else DataCatalog
    outputs = runner.run(JOB, catalog_class.from_config(catalog_config(config, run_id=save_version)))
    return cast("dict[str, Any]", outputs["report"].load())


def stored_datasets(session: str = "kedro/run-1") -> set[str]:
    """The datasets whose values are in the store."""
    store = scope_store(None, SCOPE).session(session)
    names = ("frame", "producer", "matrix", "model", "report")
    return {name for name in names if store.exists(store.derive(kedro_key(name)))}


RUNNERS: dict[str, Any] = {
    "sequential": SequentialRunner,
    "async": lambda: SequentialRunner(is_async=True),
    "thread": lambda: ThreadRunner(max_workers=2),
    "fork": lambda: ParallelRunner(max_workers=2),
    "own": lambda: EntrepotParallelRunner(max_workers=2),
}


@pytest.mark.parametrize("kind", RUNNERS)
def test_values_keep_their_types(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", "fork")
    report_value = run(RUNNERS[kind]())
    frame, _ = make()
    assert report_value["columns"] == list(frame.columns)
    assert report_value["dtypes"] == [str(dtype) for dtype in frame.dtypes]
    assert report_value["sum"] == float(frame["x"].sum())
    assert report_value["matrix"] == ["float64", 50_000, 2]
    assert report_value["model"] == ["Model", "fitted", *features(frame).sum(axis=0).tolist()]
    assert report_value["writeable"] is True  # the node's own, in private pages
    producer, consumer = report_value["processes"]
    assert (producer == os.getpid()) is (kind not in ("fork", "own"))
    assert (consumer == os.getpid()) is (kind not in ("fork", "own"))


@pytest.mark.parametrize("kind", ["sequential", "fork", "own"])
def test_intermediates_are_released_after_their_last_consumer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", "fork")
    run(RUNNERS[kind]())
    assert stored_datasets() == {"report"}


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_without_a_policy_a_killed_node_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDRO_MP_CONTEXT", "fork")
    job = pipeline([node(die, None, "x", name="die"), node(make, None, ["frame", "producer"], name="make")])
    catalog = SharedMemoryDataCatalog.from_config(catalog_config(CATALOG, run_id="run-1"))
    with pytest.raises(BrokenProcessPool):
        EntrepotParallelRunner(max_workers=2).run(job, catalog)
    assert stored_datasets() == {"frame", "producer"}, "a node beside it is not hurt"


def test_a_configured_session_keeps_all() -> None:
    run(SequentialRunner(), {"{name}": CATALOG["{name}"] | {"session": "mine"}})
    assert stored_datasets("mine") == {"frame", "producer", "matrix", "model", "report"}


def test_a_catalog_entry_names_a_locality_set() -> None:
    entry = CATALOG["{name}"] | {"session": "mine", "locality_set": {"name": "features", "reading": "random"}}
    run(SequentialRunner(), {"matrix": entry, "{name}": CATALOG["{name}"] | {"session": "mine"}})
    store = scope_store(None, SCOPE).session("mine")
    assert store.info(store.derive(kedro_key("matrix"))).locality_set == "features"
    assert store.info(store.derive(kedro_key("frame"))).locality_set == ""
    assert [locality_set.reading for locality_set in store.locality_sets() if locality_set.name == "features"] == [
        "random"
    ]


@pytest.mark.parametrize(
    ("setting", "writeable"),
    [
        ({"copy": "never"}, False),
        ({"copy": "on_write"}, True),
        ({"copy": "always"}, True),
        ({"copy_mode": "assign"}, False),
        ({"copy_mode": "copy"}, True),
        ({"copy_mode": "deepcopy"}, True),
    ],
)
def test_whether_values_may_be_changed_can_be_set(setting: dict[str, str], writeable: bool) -> None:
    assert run(SequentialRunner(), {"{name}": CATALOG["{name}"] | setting})["writeable"] is writeable


def dataset(name: str, save_version: str = "run-1", **config: Any) -> AbstractDataset[Any, Any]:
    entry = CATALOG["{name}"] | {"name": name, "run_id": save_version} | config
    return AbstractDataset.from_config(name, entry, save_version=save_version)


def object_id(name: str, session: str = "kedro/run-1") -> entrepot.ObjectID:
    return scope_store(None, SCOPE).session(session).derive(kedro_key(name))


def test_a_retry_writes_the_same_object() -> None:
    dataset("x").save(np.arange(1000))
    store = scope_store(None, SCOPE)
    first = store.info(object_id("x"))
    dataset("x").save(np.arange(2000))
    second = store.info(object_id("x"))
    assert first.id == second.id
    assert first.generation != second.generation
    assert np.array_equal(dataset("x").load(), np.arange(2000))


def test_runs_side_by_side_do_not_mix() -> None:
    dataset("x", "run-1").save({"run": 1})
    dataset("x", "run-2").save({"run": 2})
    assert [dataset("x", run).load() for run in ("run-1", "run-2")] == [{"run": 1}, {"run": 2}]
    dataset("x", "run-2").release()
    assert dataset("x", "run-1").load() == {"run": 1}


def test_a_lost_value_is_an_error() -> None:
    dataset("x").save(np.arange(1000))
    assert dataset("x").exists()
    assert scope_store(None, SCOPE).delete(object_id("x"))
    assert not dataset("x").exists()
    with pytest.raises(DatasetError, match="dataset 'x' is not in session 'kedro/run-1'") as caught:
        dataset("x").load()
    assert isinstance(caught.value.__cause__, ObjectNotFound)


def test_a_lost_value_stops_the_run() -> None:
    """The value is deleted behind the runner's back, between its producer and its consumer."""

    def make_and_lose(_: np.ndarray[Any, Any]) -> int:
        assert scope_store(None, SCOPE).delete(object_id("a"))
        return 1

    def produce() -> np.ndarray[Any, Any]:
        return np.arange(1000)

    def consume(a: np.ndarray[Any, Any], b: int) -> float:
        return float(a.sum() + b)

    job = pipeline([node(produce, None, "a"), node(make_and_lose, "a", "b"), node(consume, ["a", "b"], "c")])
    with pytest.raises(DatasetError) as caught:
        SequentialRunner().run(job, DataCatalog.from_config(catalog_config(CATALOG, run_id="run-1")))
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, ObjectNotFound):
        cause = cause.__cause__
    assert isinstance(cause, ObjectNotFound)


def test_a_released_value_stays_valid_for_its_reader() -> None:
    dataset("x").save(np.arange(100_000))
    value = dataset("x").load()
    dataset("x").release()
    assert not dataset("x").exists()
    assert int(value.sum()) == 100_000 * 99_999 // 2


def test_releasing_twice_or_what_was_never_saved_is_nothing() -> None:
    dataset("x").release()
    dataset("x").save(1)
    assert dataset("x").load() == 1
    for _ in range(2):
        dataset("x").release()
        assert not dataset("x").exists()


def test_a_stopped_store_is_an_error(daemon: Any) -> None:
    dataset("x").save(np.arange(1000))
    daemon.stop()
    close_all()
    for action in (dataset("x").load, dataset("x").exists, lambda: dataset("x").save(1)):
        with pytest.raises(DatasetError) as caught:
            action()
        assert isinstance(caught.value.__cause__, StoreUnavailable)


def test_versions_outlive_runs() -> None:
    first, second = dataset("m", "v1", versioned=True), dataset("m", "v2", versioned=True)
    assert not first.exists()
    first.save({"v": 1})
    second.save({"v": 2})
    second.release()
    assert first.load() == {"v": 1}  # a run reads what it saved itself
    later = dataset("m", "v3", versioned=True)
    assert later.exists()
    assert later.load() == {"v": 2}  # the latest version
    explicit_version = AbstractDataset.from_config(
        "m", CATALOG["{name}"] | {"name": "m", "versioned": True}, "v1", "v3"
    )
    assert explicit_version.load() == {"v": 1}


def test_a_version_is_written_once() -> None:
    dataset("m", "v1", versioned=True).save(np.arange(1000))
    dataset("m", "v1", versioned=True).save(np.arange(1000))  # saving the same content again succeeds
    with pytest.raises(DatasetError) as caught:
        dataset("m", "v1", versioned=True).save(np.arange(1001))
    assert isinstance(caught.value.__cause__, ObjectExists)


def test_the_representation_is_short() -> None:
    EntrepotDataset(name="x", session="s").save(np.arange(100_000))
    text = repr(EntrepotDataset(name="x", session="s"))
    assert "name='x'" in text
    assert len(text) < 400


def test_run_of_only_missing_outputs(tmp_path: Path) -> None:
    """Values in a session that outlives the run are not computed again."""
    calls = tmp_path / "calls"

    def count() -> int:
        with calls.open("a") as file:
            file.write("x")
        return 7

    job = pipeline([node(count, None, "n"), node(lambda n: n + 1, "n", "out")])
    for _ in range(2):
        catalog = DataCatalog.from_config(catalog_config({"{name}": CATALOG["{name}"] | {"session": ""}}))
        SequentialRunner().run(job, catalog, only_missing_outputs=True)
        assert dataset("out", session="").load() == 8
    assert calls.read_text() == "x"


def test_writing_returns_the_size_of_a_small_value() -> None:
    dataset = EntrepotDataset(name="few", session="kept")
    assert dataset.write_direct(np.arange(10)).nbytes == 80
    (info,) = scope_store(None, SCOPE).session("kept").list()
    assert info.nbytes == 80


@pytest.mark.parametrize("setting", ["1", "", "0"])
def test_nodes_make_values_in_the_store_unless_that_is_off(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_ALLOCATE", setting)
    hooks = _create_hook_manager()
    hooks.register(EntrepotHooks())
    job = pipeline(
        [
            node(lambda: np.arange(500_000), None, "first", name="first"),
            node(lambda first: np.concatenate([first, first]), "first", "second", name="second"),
        ]
    )
    catalog = DataCatalog.from_config(catalog_config(CATALOG))
    _, sealed = until_nothing_is_refused(lambda: SequentialRunner().run(job, catalog, hooks))
    assert sealed == (0 if setting == "0" else 2)
    np.testing.assert_array_equal(catalog["second"].load(), np.tile(np.arange(500_000), 2))
