"""What a held pod gets when it is released, without a server."""

from __future__ import annotations

import copy
from typing import Any

from entrepot_io.placement import Node, Site, inject
from entrepot_operator.controller.drawing import drawing

A = "aa" * 20
NODES = {name: Node({"kubernetes.io/hostname": name, "entrepot.dev/store": "ready"}) for name in ("n1", "n2")}


class Known:
    """By now, A is on n1."""

    synced = True

    def locations(self, ids: Any) -> Any:
        return {one: {"n1": 100} for one in ids if one == A}

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
    (affinity,) = [one["value"]["nodeAffinity"] for one in patch if one["path"] == "/spec/affinity"]
    terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    return [term["preference"]["matchExpressions"][0]["values"][0] for term in terms]


def paths(patch: list[dict[str, Any]]) -> set[str]:
    return {one["path"] for one in patch}


def test_a_pod_that_was_made_before_its_objects_is_drawn_to_them() -> None:
    made = inject(pod(requires=A), None, {A: {}}, nodes=NODES)  # as the webhook did: the store is mounted
    assert made["spec"]["volumes"]
    patch = drawing(made, Known(), Site())
    assert hosts(patch) == ["n1"]
    assert paths(patch) == {"/spec/affinity", "/metadata/annotations/entrepot.dev~1injected"}


def test_a_pod_that_no_webhook_saw_gets_its_affinity_and_no_mounts() -> None:
    patch = drawing(pod(requires=A), Known(), Site())
    assert hosts(patch) == ["n1"]
    assert paths(patch) <= {"/spec/affinity", "/metadata/annotations/entrepot.dev~1injected"}


def test_objects_that_moved_draw_it_elsewhere() -> None:
    made = inject(pod(requires=A), None, {A: {"n2": 100}}, nodes=NODES)
    assert hosts(drawing(made, Known(), Site())) == ["n1"]


def test_where_nothing_else_can_be_said_nothing_is_written() -> None:
    made = inject(pod(requires=A), None, {A: {"n1": 100}}, nodes=NODES)
    assert drawing(made, Known(), Site()) == []
    # The pod mounts another socket directory, which can no longer be changed.
    assert drawing(made, Known(), Site(socket_folder="/elsewhere")) == []
    assert drawing(pod(requires="no ID"), Known(), Site()) == []


def test_the_pod_itself_is_not_changed() -> None:
    made = inject(pod(requires=A), None, {A: {}}, nodes=NODES)
    before = copy.deepcopy(made)
    drawing(made, Known(), Site())
    assert made == before
