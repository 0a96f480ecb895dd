"""Changes to a held pod when it is released, without a server."""

from __future__ import annotations

import copy
from typing import Any

from entrepot_operator.controller.state.gate_affinity import affinity_patch
from entrepot_operator.placement import ClusterConfig, Node, inject

A = "aa" * 20
NODES = {name: Node({"kubernetes.io/hostname": name, "entrepot.dev/store": "ready"}) for name in ("n1", "n2")}


class FakeClusterView:
    """By now, A is on n1."""

    synced = True

    def locations(self, ids: Any) -> Any:
        return {object_id: {"n1": 100} for object_id in ids if object_id == A}

    def nodes(self) -> Any:
        return NODES


def pod(**annotations: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {f"entrepot.dev/{key}": value for key, value in annotations.items()}},
        "spec": {
            "schedulingGates": [{"name": "entrepot.dev/objects"}],
            "containers": [{"name": "c", "image": "i"}],
        },
    }


def hosts(patch: list[dict[str, Any]]) -> list[str]:
    (affinity,) = [operation["value"]["nodeAffinity"] for operation in patch if operation["path"] == "/spec/affinity"]
    terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    return [term["preference"]["matchExpressions"][0]["values"][0] for term in terms]


def paths(patch: list[dict[str, Any]]) -> set[str]:
    return {operation["path"] for operation in patch}


def test_a_pod_that_was_made_before_its_objects_is_drawn_to_them() -> None:
    result = inject(pod(requires=A), None, {A: {}}, nodes=NODES)  # as the webhook did: the store is mounted
    assert result["spec"]["volumes"]
    patch = affinity_patch(result, FakeClusterView(), ClusterConfig())
    assert hosts(patch) == ["n1"]
    assert paths(patch) == {"/spec/affinity", "/metadata/annotations/entrepot.dev~1injected"}


def test_a_pod_that_no_webhook_saw_gets_its_affinity_and_no_mounts() -> None:
    patch = affinity_patch(pod(requires=A), FakeClusterView(), ClusterConfig())
    assert hosts(patch) == ["n1"]
    assert paths(patch) <= {"/spec/affinity", "/metadata/annotations/entrepot.dev~1injected"}


def test_objects_that_moved_draw_it_elsewhere() -> None:
    result = inject(pod(requires=A), None, {A: {"n2": 100}}, nodes=NODES)
    assert hosts(affinity_patch(result, FakeClusterView(), ClusterConfig())) == ["n1"]


def test_an_unchanged_affinity_is_not_written() -> None:
    result = inject(pod(requires=A), None, {A: {"n1": 100}}, nodes=NODES)
    assert affinity_patch(result, FakeClusterView(), ClusterConfig()) == []
    # The pod mounts another socket directory, which can no longer be changed.
    assert affinity_patch(result, FakeClusterView(), ClusterConfig(socket_folder="/elsewhere")) == []
    assert affinity_patch(pod(requires="no ID"), FakeClusterView(), ClusterConfig()) == []


def test_the_pod_itself_is_not_changed() -> None:
    result = inject(pod(requires=A), None, {A: {}}, nodes=NODES)
    before = copy.deepcopy(result)
    affinity_patch(result, FakeClusterView(), ClusterConfig())
    assert result == before
