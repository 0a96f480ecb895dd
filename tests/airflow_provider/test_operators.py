"""The provider's hook, operators, sensors, options for values and assets, in a real Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pandas as pd
import pytest
from entrepot_io.reference import Reference
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("operator_dags.py")
ROWS = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where operators put files."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def spilling(start_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store with a disk, which evicting needs."""
    return start_daemon("256MiB", "--spill-path", str(tmp_path_factory.mktemp("spill")))


@pytest.fixture(scope="module")
def runs(
    run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory, folder: Path, spilling: Any
) -> StepResults:
    """All DAGs of operator_dags.py, run once by an Airflow for this module."""

    def connection(address: str) -> str:
        return json.dumps({"conn_type": "entrepot", "extra": {"address": address, "scope": "tests"}})

    return run_dags(
        DAGS,
        tmp_path_factory.mktemp("airflow"),
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS.parent),
        FILES=str(folder),
        AIRFLOW_CONN_STORE=connection(spilling.address),
        ENTREPOT_ADDRESS=spilling.address,
        AIRFLOW_CONN_AWAY=connection(f"unix://{folder}/nothing.sock"),
    )


@pytest.fixture
def store(spilling: Any) -> Iterator[entrepot.Store]:
    """The store that the DAGs use."""
    with entrepot.connect(spilling.address, scope="tests") as connected:
        yield connected


def test_objects_become_files_and_checkpoints_and_come_back(runs: StepResults, folder: Path) -> None:
    result = runs.value("operators")
    states, entries = result["states"], result["entries"]
    assert states.pop("inline") == "failed"  # the value is in Airflow's database, and no object
    assert set(states.values()) == {"success"}, states
    assert pd.read_parquet(folder / "files" / "x.parquet")["x"].tolist() == list(range(ROWS))
    assert entries["total.return_value"] == ROWS * (ROWS - 1) // 2
    assert entries["restored.return_value"] == ROWS
    assert entries["evict.return_value"] == 1
    assert entries["restore.return_value"] == [str(Reference.parse(entries["load.return_value"]).id)]
    for name in ("one", "whole"):
        url = folder / "checkpoints" / result["run_id"] / name
        assert entries[f"{name}.return_value"] == str(url)
        assert url.is_dir()


def test_an_imported_value_and_its_xcom_share_their_bytes(runs: StepResults, store: entrepot.Store) -> None:
    reference = Reference.parse(runs.value("operators")["entries"]["read.return_value"])
    in_session = store.session(reference.session)
    assert in_session.info(reference.id).nbytes >= ROWS * 16
    assert in_session.resolve("again") != reference.id
    assert in_session.info(reference.id).own_bytes < 10_000


def test_options_of_a_value(runs: StepResults, store: entrepot.Store) -> None:
    result = runs.value("options")
    states, entries = result["states"], result["entries"]
    assert states.pop("not_plain") == "failed"
    assert set(states.values()) == {"success"}, states
    assert entries["use.return_value"] == ["DataFrame", 5000, {"a": 1}]
    reference = Reference.parse(entries["decorated.return_value"])
    assert reference.session == f"airflow-kept/options/{result['run_id'].replace('/', '%2F')}/604800s"
    kept = store.session(reference.session)
    assert kept.resolve("orders") == reference.id
    assert [(each.name, each.reading) for each in kept.locality_sets() if each.name == "features"] == [
        ("features", "random")
    ]
    (seconds,) = [each.ttl_seconds for each in store.sessions() if each.session == reference.session]
    assert seconds == 7 * 86_400
    assert entries["several.here"] == list(range(5000))
    mapping = Reference.parse(entries["several.there"])
    assert store.session(mapping.session).get_by_name("there") == {"a": 1}


@pytest.mark.parametrize("dag_id", ["sensors", "deferred"])
def test_sensors_wait(dag_id: str, runs: StepResults, store: entrepot.Store) -> None:
    result = runs.value(dag_id)
    assert result["states"] == {"object": "success", "collection": "success", "wrong": "failed"}
    ids = [result["entries"][f"{name}.return_value"] for name in ("object", "collection")]
    assert ids == [str(store.resolve(f"{dag_id} {name}")) for name in ("object", "parts")]


def test_airflow_has_the_providers_parts(runs: StepResults, store: entrepot.Store) -> None:
    parts = runs.value("provider")
    assert parts["hook"] == ["entrepot_airflow.hooks.entrepot.EntrepotHook", "Entrepot"]
    assert parts["fields"] == [f"extra__entrepot__{name}" for name in ("address", "scope", "session")]
    assert parts["hooks of tasks"]
    assert parts["asset"] == "entrepot://production/-/orders"
    assert "SCOPE/SESSION/NAME" in parts["refused"]
    succeeded, message = parts["tested"]
    assert succeeded
    assert f"store of host {store.host}" in message
    succeeded, message = parts["away"]
    assert not succeeded
    assert "nothing.sock" in message
