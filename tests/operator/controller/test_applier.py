"""The operator's writes when the cluster has changed since it was read."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from entrepot_operator.controller.applier import Applier
from entrepot_operator.controller.state.gates import GatedPod
from entrepot_operator.controller.state.labels import LabelChange
from entrepot_operator.kubernetes.errors import ClusterRefused

POD = "/api/v1/namespaces/team/pods/p"
DEADLINE = datetime(2030, 1, 1, 13, tzinfo=timezone.utc)


def writes(server: Any) -> list[str]:
    """Paths of all requests that change something."""
    return [path for method, path in server.requests if method != "GET"]


def test_a_new_pod_of_the_same_name_keeps_its_gate(server: Any) -> None:
    gated = {"spec": {"schedulingGates": [{"name": "entrepot.dev/objects"}]}}
    server.put(POD, {"metadata": {"name": "p", "namespace": "team", "uid": "new"}, **gated})
    server.refuse = lambda method, *_: (500, "the patch") if method == "PATCH" else None
    applier = Applier(server.api(0), "one")
    seen = GatedPod("team", "p", "old", (), DEADLINE, 600.0)
    assert applier.lift_gate(seen, lambda _: []) == "gone"
    assert writes(server) == []
    server.resources[POD]["metadata"]["uid"] = "old"
    with pytest.raises(Exception, match="the patch"):
        applier.lift_gate(seen, lambda _: [])
    assert writes(server) == [POD]


def test_a_label_for_a_node_that_was_replaced_is_dropped(server: Any) -> None:
    applier = Applier(server.api(0), "one")
    change = LabelChange("node-a", "old", True)
    answers = [(409, "the UID in the precondition differs"), (404, "not found"), (422, "invalid label")]
    server.refuse = lambda *_: answers[0]
    assert not applier.apply_label(change)
    del answers[0]
    assert not applier.apply_label(change)
    del answers[0]
    with pytest.raises(ClusterRefused, match="invalid label"):
        applier.apply_label(change)
    assert change.manifest()["metadata"]["uid"] == "old"
