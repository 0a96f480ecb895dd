"""Several installations in one cluster: each keeps to its own, and two in one namespace get an error."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from entrepot_operator import install_manifests
from entrepot_operator.controller.cache.cluster_cache import GATE, ClusterCache, Key
from entrepot_operator.controller.cache.tables import CombinedTable, Table
from entrepot_operator.controller.commands import add_subcommand
from entrepot_operator.controller.leader_election import INSTALLATION_ANNOTATION, ElectionConfig, LeaderElector
from entrepot_operator.controller.main import Operator
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.state import snapshots
from entrepot_operator.controller.state.gates import GatedPod
from entrepot_operator.controller.work_queue import WorkQueue
from entrepot_operator.kubernetes.objects import lease_path

PATH = lease_path("stores", "entrepot-operator")
SECONDS = 15.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(server: Any, installation: str, clock: Clock, replica: int = 1) -> LeaderElector:
    config = ElectionConfig("stores", f"{installation}-{replica}", lease_seconds=SECONDS, installation=installation)
    return LeaderElector(config, server.api(0), lambda _: None, clock)


def test_an_installation_does_not_take_over_from_a_living_one_and_says_why(server: Any) -> None:
    clock = Clock()
    blue, green = elector(server, "blue", clock), elector(server, "green", clock)
    blue.try_acquire()
    green.try_acquire()
    assert (blue.leading(), green.leading(), blue.foreign_installation) == (True, False, "")
    assert (
        "namespace stores is already managed by installation 'blue' (blue-1 holds the Lease"
        in green.foreign_installation
    )
    assert "this is 'green'" in green.foreign_installation
    assert "--namespace" in green.foreign_installation
    clock.now += SECONDS + 1
    green.try_acquire()
    assert (green.leading(), green.foreign_installation) == (True, "")
    assert server.resources[PATH]["metadata"]["annotations"] == {INSTALLATION_ANNOTATION: "green"}


def test_replicas_of_one_installation_are_no_error(server: Any) -> None:
    clock = Clock()
    blue, other = elector(server, "blue", clock), elector(server, "blue", clock, replica=2)
    blue.try_acquire()
    other.try_acquire()
    assert (other.leading(), other.foreign_installation) == (False, "")


@pytest.fixture
def operator(server: Any) -> Iterator[Operator]:
    settings = Settings("stores", "green-1", port=0, installation="green")
    operator = Operator(settings, lambda patience: server.api(patience))
    yield operator
    operator.health.close()


def test_it_is_not_ready_beside_another_installation(server: Any, operator: Operator) -> None:
    spec = {"holderIdentity": "blue-1", "leaseDurationSeconds": 15}
    server.put(
        PATH,
        {"metadata": {"name": "entrepot-operator", "annotations": {INSTALLATION_ANNOTATION: "blue"}}, "spec": spec},
    )
    operator._elector.try_acquire()
    assert any("already managed by installation 'blue'" in problem for problem in operator.readiness_problems())


def test_the_label_that_another_installation_wrote_is_not_ours() -> None:
    blue, green = (Settings(name, "x").label_manager for name in ("blue", "green"))
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {"f:entrepot.dev/store": {}}}}
    metadata = {"name": "n", "labels": {"entrepot.dev/store": "ready"}}
    resource = {"metadata": {**metadata, "managedFields": [{"manager": blue, "fieldsV1": owned}]}}
    assert snapshots.node(resource, blue).is_ours
    assert not snapshots.node(resource, green).is_ours


def cluster_cache(server: Any, gates: tuple[str, ...] | None) -> tuple[ClusterCache, WorkQueue[Key]]:
    queue: WorkQueue[Key] = WorkQueue()
    return ClusterCache("stores", lambda: server.api(0), queue, lambda: datetime.now(timezone.utc), gates), queue


@pytest.mark.parametrize(
    ("gates", "requested_paths"),
    [
        (None, set()),
        ((), {"/api/v1/pods"}),
        (("b", "a", "a"), {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"}),
    ],
)
def test_pods_are_watched_only_in_namespaces_with_gates(
    server: Any, gates: tuple[str, ...] | None, requested_paths: set[str], wait_until: Any
) -> None:
    cache, _ = cluster_cache(server, gates)
    own = "/api/v1/namespaces/stores/pods"
    assert len([name for name in cache.informers if name.startswith("held-pods")]) == len(requested_paths)

    def of_pods() -> set[str]:
        return {path for _, path in list(server.requests) if path.endswith("/pods")}

    cache.start()
    try:
        wait_until(lambda: of_pods() >= requested_paths | {own}, "every informer of pods to have sent a request")
    finally:
        cache.stop()
    assert of_pods() == requested_paths | {own}


def test_without_gates_nothing_is_queued_for_pods(server: Any) -> None:
    cache, queue = cluster_cache(server, None)
    cache.enqueue_all(GATE)
    assert len(queue) == 0
    assert cache.gated_pods.get("a/b") is None


def test_one_namespace_read_anew_leaves_the_others(server: Any) -> None:
    changes: list[Any] = []

    def reduce(resource: Any) -> GatedPod:
        return GatedPod("n", resource["metadata"]["name"], "u", (), datetime.now(timezone.utc), 1.0)

    tables = [Table(reduce, lambda before, after: changes.append((before, after))) for _ in range(2)]
    combined = CombinedTable(tables)
    tables[0].put([{"metadata": {"name": "x", "namespace": "a"}}])
    tables[1].put([{"metadata": {"name": "y", "namespace": "b"}}])
    tables[0].put([])
    assert list(combined.all()) == ["b/y"]
    assert combined.get("b/y") is not None
    assert combined.get("a/x") is None


def test_the_command_line_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_subcommand(parser.add_subparsers())
    given = parser.parse_args(
        ["operator", "--gates-namespace", "a", "--gates-namespace", "b", "--installation", "blue"]
    )
    assert (given.gates_namespace, given.no_gates, given.installation) == (["a", "b"], False, "blue")
    with pytest.raises(SystemExit):
        parser.parse_args(["operator", "--no-gates", "--gates-namespace", "a"])
    assert "not allowed with" in capsys.readouterr().err


def test_names_of_what_has_no_namespace_are_those_of_the_installation() -> None:
    assert [install_manifests.installation_prefix(item) for item in ("entrepot-system", "blue")] == [
        "entrepot",
        "entrepot-blue",
    ]
    names: dict[str, set[str]] = {}
    for namespace in ("entrepot-system", "blue", "entrepot-system-2"):
        names[namespace] = {
            f"{item['kind']}/{item['metadata']['name']}"
            for item in install_manifests.objects(namespace=namespace)
            if "namespace" not in item["metadata"] and item["kind"] != "CustomResourceDefinition"
        }
    assert not names["blue"] & names["entrepot-system-2"]
    assert not names["blue"] & names["entrepot-system"]
    assert "ClusterRole/entrepot-entrepot-system-2-gates" in names["entrepot-system-2"]
