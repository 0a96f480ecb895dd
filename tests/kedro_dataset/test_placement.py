"""Annotations that nodes put on the pod of their task name exactly the objects that the nodes will read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot_io.connections import close_all
from entrepot_io.placement import names, wishes
from entrepot_io.sessions import kedro_session_in_airflow
from entrepot_kedro import EntrepotDataset, node_annotations
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Pipeline, node


def passed(*values: Any) -> Any:
    return values[0]


CLEAN = node(passed, ["orders", "params"], "cleaned", name="clean")
TRAIN = node(passed, ["cleaned", "model"], "trained", name="train")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ENTREPOT_SESSION", "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENTREPOT_SCOPE", "project")
    yield
    close_all()


def catalog(**more: Any) -> DataCatalog:
    run = {name: EntrepotDataset(name=name) for name in ("orders", "cleaned", "trained")}
    outlives = EntrepotDataset(name="model", session="")
    return DataCatalog({**run, "model": outlives, "params": MemoryDataset(1), **more})


def test_what_the_nodes_read_and_nothing_else() -> None:
    said = node_annotations([CLEAN], catalog())
    assert said == {names.KEYS: "dataset:orders", names.SCOPE: "project"}
    said = node_annotations(Pipeline([TRAIN]), catalog(), locality="required")
    assert said[names.KEYS] == "dataset:cleaned"
    assert said[names.REQUIRES] == str(ObjectID.derive("project", "", "dataset:model"))
    assert said[names.LOCALITY] == "required"


def test_what_nodes_of_one_pod_hand_to_each_other_does_not_count() -> None:
    assert node_annotations([CLEAN, TRAIN], catalog())[names.KEYS] == "dataset:orders"


def test_they_are_the_objects_that_the_dag_run_reads(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is created where only keys are known; the node inside it connects to the store."""
    keyed = wishes.keyed(node_annotations([CLEAN], catalog()))
    assert keyed is not None
    expected = keyed.ids(kedro_session_in_airflow("etl", "manual__1"))
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "etl")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    dataset = EntrepotDataset(name="orders")
    dataset.save(b"x" * 10_000)
    stored = [str(one.id) for one in dataset.store().list()]
    assert stored == expected


def test_a_session_from_outside_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_SESSION", "nightly")
    said = node_annotations([CLEAN], catalog())
    assert said == {names.REQUIRES: str(ObjectID.derive("project", "nightly", "dataset:orders"))}


def test_elsewhere_than_under_airflow_the_session_is_said() -> None:
    keyed = wishes.keyed(node_annotations([CLEAN], catalog(), session="nightly"))
    assert keyed is not None
    assert keyed.ids(None) == [str(ObjectID.derive("project", "nightly", "dataset:orders"))]


def test_datasets_of_two_scopes_are_refused() -> None:
    two = node(passed, ["orders", "foreign"], "out", name="two")
    with pytest.raises(InvalidArgument, match="another, project"):
        node_annotations([two], catalog(foreign=EntrepotDataset(name="foreign", scope="another")))


def test_nodes_that_read_nothing_from_the_store_say_nothing() -> None:
    assert node_annotations([node(passed, "params", "orders", name="first")], catalog()) == {}
