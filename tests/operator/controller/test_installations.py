"""Several installations in one cluster: each keeps to its own, and two in one namespace get an error."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from entrepot_io.cluster.objects import lease_path
from entrepot_operator import installing
from entrepot_operator.controller import observed
from entrepot_operator.controller.commands import add_verb
from entrepot_operator.controller.gates import GatedPod
from entrepot_operator.controller.knowledge import GATE, Key, Knowledge
from entrepot_operator.controller.leading import INSTALLATION, Election, Elector
from entrepot_operator.controller.queue import WorkQueue
from entrepot_operator.controller.running import Operator
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.tables import Several, Table

PATH = lease_path("stores", "entrepot-operator")
SECONDS = 15.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(server: Any, installation: str, clock: Clock, replica: int = 1) -> Elector:
    election = Election("stores", f"{installation}-{replica}", seconds=SECONDS, installation=installation)
    return Elector(election, server.api(0), lambda _: None, clock)


def test_an_installation_does_not_take_over_from_a_living_one_and_says_why(server: Any) -> None:
    clock = Clock()
    blue, green = elector(server, "blue", clock), elector(server, "green", clock)
    blue.step()
    green.step()
    assert (blue.leading(), green.leading(), blue.foreign) == (True, False, "")
    assert "the namespace stores is kept by the installation 'blue' (blue-1 has the Lease" in green.foreign
    assert "this is 'green'" in green.foreign
    assert "--namespace" in green.foreign
    clock.now += SECONDS + 1
    green.step()
    assert (green.leading(), green.foreign) == (True, "")
    assert server.resources[PATH]["metadata"]["annotations"] == {INSTALLATION: "green"}


def test_replicas_of_one_installation_are_no_error(server: Any) -> None:
    clock = Clock()
    blue, other = elector(server, "blue", clock), elector(server, "blue", clock, replica=2)
    blue.step()
    other.step()
    assert (other.leading(), other.foreign) == (False, "")


@pytest.fixture
def operator(server: Any) -> Iterator[Operator]:
    settings = Settings("stores", "green-1", port=0, installation="green")
    operator = Operator(settings, lambda patience: server.api(patience))
    yield operator
    operator.health.close()


def test_it_is_not_ready_beside_another_installation(server: Any, operator: Operator) -> None:
    spec = {"holderIdentity": "blue-1", "leaseDurationSeconds": 15}
    server.put(PATH, {"metadata": {"name": "entrepot-operator", "annotations": {INSTALLATION: "blue"}}, "spec": spec})
    operator._elector.step()
    assert any("kept by the installation 'blue'" in one for one in operator.unready())


def test_the_label_that_another_installation_wrote_is_not_ours() -> None:
    blue, green = (Settings(one, "x").manager_of_labels for one in ("blue", "green"))
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {"f:entrepot.dev/store": {}}}}
    metadata = {"name": "n", "labels": {"entrepot.dev/store": "ready"}}
    resource = {"metadata": {**metadata, "managedFields": [{"manager": blue, "fieldsV1": owned}]}}
    assert observed.node(resource, blue).ours
    assert not observed.node(resource, green).ours


def knowledge(server: Any, gates: tuple[str, ...] | None) -> tuple[Knowledge, WorkQueue[Key]]:
    queue: WorkQueue[Key] = WorkQueue()
    return Knowledge("stores", lambda: server.api(0), queue, lambda: datetime.now(timezone.utc), gates), queue


@pytest.mark.parametrize(
    ("gates", "asked"),
    [
        (None, set()),
        ((), {"/api/v1/pods"}),
        (("b", "a", "a"), {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"}),
    ],
)
def test_pods_are_looked_at_where_gates_are_wanted_and_nowhere_else(
    server: Any, gates: tuple[str, ...] | None, asked: set[str], wait_until: Any
) -> None:
    known, _ = knowledge(server, gates)
    own = "/api/v1/namespaces/stores/pods"
    assert len([name for name in known.watchers if name.startswith("held-pods")]) == len(asked)

    def of_pods() -> set[str]:
        return {path for _, path in list(server.asked) if path.endswith("/pods")}

    known.start()
    try:
        wait_until(lambda: of_pods() >= asked | {own}, "every watcher of pods to have asked")
    finally:
        known.stop()
    assert of_pods() == asked | {own}


def test_without_gates_nothing_is_queued_for_pods(server: Any) -> None:
    known, queue = knowledge(server, None)
    known.look_at_all(GATE)
    assert len(queue) == 0
    assert known.gated.get("a/b") is None


def test_one_namespace_read_anew_leaves_the_others(server: Any) -> None:
    told: list[Any] = []

    def reduce(resource: Any) -> GatedPod:
        return GatedPod("n", resource["metadata"]["name"], "u", (), datetime.now(timezone.utc), 1.0)

    tables = [Table(reduce, lambda before, after: told.append((before, after))) for _ in range(2)]
    both = Several(tables)
    tables[0].put([{"metadata": {"name": "x", "namespace": "a"}}])
    tables[1].put([{"metadata": {"name": "y", "namespace": "b"}}])
    tables[0].put([])
    assert list(both.all()) == ["b/y"]
    assert both.get("b/y") is not None
    assert both.get("a/x") is None


def test_the_command_line_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_verb(parser.add_subparsers())
    given = parser.parse_args(
        ["operator", "--gates-namespace", "a", "--gates-namespace", "b", "--installation", "blue"]
    )
    assert (given.gates_namespace, given.no_gates, given.installation) == (["a", "b"], False, "blue")
    with pytest.raises(SystemExit):
        parser.parse_args(["operator", "--no-gates", "--gates-namespace", "a"])
    assert "not allowed with" in capsys.readouterr().err


def test_names_of_what_has_no_namespace_are_those_of_the_installation() -> None:
    assert [installing.installation(one) for one in ("entrepot-system", "blue")] == ["entrepot", "entrepot-blue"]
    names: dict[str, set[str]] = {}
    for namespace in ("entrepot-system", "blue", "entrepot-system-2"):
        names[namespace] = {
            f"{one['kind']}/{one['metadata']['name']}"
            for one in installing.objects(namespace=namespace)
            if "namespace" not in one["metadata"] and one["kind"] != "CustomResourceDefinition"
        }
    assert not names["blue"] & names["entrepot-system-2"]
    assert not names["blue"] & names["entrepot-system"]
    assert "ClusterRole/entrepot-entrepot-system-2-gates" in names["entrepot-system-2"]
