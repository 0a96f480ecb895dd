"""Annotations that nodes put on the pod of their task name exactly the objects that the nodes will read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot_io.connections import close_all
from entrepot_io.sessions import kedro_session_in_airflow
from entrepot_kedro import EntrepotDataset, node_annotations
from entrepot_operator.placement import names, placement_hints
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Pipeline, node


def return_first(*values: Any) -> Any:
    return values[0]


CLEAN = node(return_first, ["orders", "params"], "cleaned", name="clean")
TRAIN = node(return_first, ["cleaned", "model"], "trained", name="train")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ENTREPOT_SESSION", "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENTREPOT_SCOPE", "project")
    yield
    close_all()


def catalog(**datasets: Any) -> DataCatalog:
    run_datasets = {name: EntrepotDataset(name=name) for name in ("orders", "cleaned", "trained")}
    persistent = EntrepotDataset(name="model", session="")
    return DataCatalog({**run_datasets, "model": persistent, "params": MemoryDataset(1), **datasets})


def test_annotations_name_exactly_the_inputs() -> None:
    pod_annotations = node_annotations([CLEAN], catalog())
    assert pod_annotations == {names.KEYS: "dataset:orders", names.SCOPE: "project"}
    pod_annotations = node_annotations(Pipeline([TRAIN]), catalog(), locality="required")
    assert pod_annotations[names.KEYS] == "dataset:cleaned"
    assert pod_annotations[names.REQUIRES] == str(ObjectID.derive("project", "", "dataset:model"))
    assert pod_annotations[names.LOCALITY] == "required"


def test_values_passed_within_a_pod_are_left_out() -> None:
    assert node_annotations([CLEAN, TRAIN], catalog())[names.KEYS] == "dataset:orders"


def test_annotated_objects_are_those_the_dag_run_reads(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is created where only keys are known; the node inside it connects to the store."""
    keyed_objects = placement_hints.parse_keyed_objects(node_annotations([CLEAN], catalog()))
    assert keyed_objects is not None
    expected = keyed_objects.ids(kedro_session_in_airflow("etl", "manual__1"))
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "etl")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    dataset = EntrepotDataset(name="orders")
    dataset.save(b"x" * 10_000)
    stored = [str(info.id) for info in dataset.store().list()]
    assert stored == expected


def test_an_explicit_session_gives_object_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_SESSION", "nightly")
    pod_annotations = node_annotations([CLEAN], catalog())
    assert pod_annotations == {names.REQUIRES: str(ObjectID.derive("project", "nightly", "dataset:orders"))}


def test_outside_airflow_the_session_is_given() -> None:
    keyed_objects = placement_hints.parse_keyed_objects(node_annotations([CLEAN], catalog(), session="nightly"))
    assert keyed_objects is not None
    assert keyed_objects.ids(None) == [str(ObjectID.derive("project", "nightly", "dataset:orders"))]


def test_datasets_of_two_scopes_are_refused() -> None:
    foreign_reader = node(return_first, ["orders", "foreign"], "out", name="two")
    with pytest.raises(InvalidArgument, match="another, project"):
        node_annotations([foreign_reader], catalog(foreign=EntrepotDataset(name="foreign", scope="another")))


def test_nodes_without_store_inputs_have_no_annotations() -> None:
    assert node_annotations([node(return_first, "params", "orders", name="first")], catalog()) == {}
