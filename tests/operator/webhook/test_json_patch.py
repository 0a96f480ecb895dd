"""Whatever the pod, the webhook changes only affinity, mounts, environment and its own annotation."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from entrepot_operator.placement import ClusterConfig, Node, inject
from entrepot_operator.webhook.handler import decide
from entrepot_operator.webhook.json_patch import UnexpectedChange, create_patch
from hypothesis import given, settings
from hypothesis import strategies as st

OBJECTS = [f"{place:02x}" * 20 for place in range(4)]
NODES = {name: Node({"kubernetes.io/hostname": name, "entrepot.dev/store": "ready"}) for name in ("n1", "n2")}
MAY_CHANGE = re.compile(
    r"/spec/(affinity|volumes|(initC|c)ontainers/\d+/(env|volumeMounts))"
    r"|/metadata/annotations(/entrepot\.dev~1injected)?"
)

variables: Any = st.sampled_from(["A", "ENTREPOT_ADDRESS"]).map(lambda name: {"name": name, "value": "x"})
mounts: Any = st.sampled_from(["/data", "/run/entrepot"]).map(lambda path: {"name": "mine", "mountPath": path})


def container(name: str) -> Any:
    own = {
        "env": st.none() | st.lists(variables, max_size=2, unique_by=lambda item: str(item["name"])),
        "volumeMounts": st.lists(mounts, max_size=2, unique_by=lambda item: str(item["mountPath"])),
        "resources": st.just({"limits": {"cpu": "1"}}),
    }
    return st.fixed_dictionaries({"name": st.just(name), "image": st.just("i")}, optional=own)


listed = st.lists(st.sampled_from([*OBJECTS, "ff" * 20]), max_size=4).map(",".join)
levels = st.sampled_from(["preferred", "required", "off", "nonsense"])
pod_annotations: Any = st.fixed_dictionaries(
    {},
    optional={
        "entrepot.dev/requires": listed,
        "entrepot.dev/partitioned": listed,
        "entrepot.dev/locality": levels,
        "entrepot.dev/store": levels,
        "entrepot.dev/mounts": st.sampled_from(["on", "off"]),
        "entrepot.dev/containers": st.sampled_from(["main", "main,other", "nobody"]),
        "of/others~": st.just("x"),
    },
)
terms: Any = st.just([{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}])
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
specs: Any = st.fixed_dictionaries(
    {"containers": st.tuples(container("main"), container("other")).map(list)},
    optional={
        "initContainers": container("first").map(lambda each_container: [each_container]),
        "affinity": st.none()
        | terms.map(lambda node_terms: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": node_terms}}}),
        "volumes": st.none() | st.just([{"name": "mine", "emptyDir": {}}]),
        "tolerations": st.just([{"operator": "Exists"}]),
        "schedulerName": st.just("default-scheduler"),
        "nodeName": st.just("n1"),
    },
)
owners = st.sampled_from(["Job", "DaemonSet"]).map(lambda kind: [{"kind": kind, "name": "maker", "controller": True}])
metadata: Any = st.fixed_dictionaries(
    {"name": st.just("pod")},
    optional={
        "annotations": st.none() | pod_annotations,
        "labels": st.just({"batch.kubernetes.io/job-completion-index": "1"}),
        "ownerReferences": owners,
    },
)
pods: Any = st.fixed_dictionaries({"kind": st.just("Pod"), "metadata": metadata, "spec": specs})
locations: Any = st.dictionaries(
    st.sampled_from(OBJECTS), st.dictionaries(st.sampled_from(["n1", "n2", "gone"]), st.integers(1, 100), max_size=2)
)


class FakeClusterView:
    def __init__(self, object_locations: Any, nodes: Any) -> None:
        self.synced = True
        self._located = object_locations
        self._nodes = nodes

    def locations(self, ids: Any) -> Any:
        return {object_id: self._located[object_id] for object_id in ids if object_id in self._located}

    def nodes(self) -> Any:
        return self._nodes


def patched(pod: Any, operations: Any) -> Any:
    """Apply a patch as an API server would (RFC 6902: add, replace, remove)."""
    result = copy.deepcopy(pod)
    for operation in operations:
        *steps, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        holder = result
        for step in steps:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if operation["op"] in ("replace", "remove"):
            assert last in holder, operation
        if operation["op"] == "remove":
            del holder[last]
        else:
            holder[last] = copy.deepcopy(operation["value"])
    return result


def without_injected_fields(pod: Any) -> Any:
    """The parts of a pod that the webhook must not change."""
    left = copy.deepcopy(pod)
    for key in ("affinity", "volumes"):
        left["spec"].pop(key, None)
    for kind in ("containers", "initContainers"):
        for each_container in left["spec"].get(kind) or []:
            each_container.pop("env", None)
            each_container.pop("volumeMounts", None)
    own = dict(left["metadata"].pop("annotations", None) or {})
    own.pop("entrepot.dev/injected", None)
    return left, own


@settings(max_examples=400, deadline=None)
@given(pods, locations, locations, st.sampled_from([None, NODES]), st.booleans(), st.booleans())
def test_nothing_else_is_ever_patched(
    pod: Any, before: Any, now: Any, nodes: Any, injected: bool, with_mounts: bool
) -> None:
    if injected and "nonsense" not in str(pod) and "nobody" not in str(pod):
        pod = inject(pod, None, before)
    kept = copy.deepcopy(pod)
    decision = decide(pod, FakeClusterView(now, nodes), ClusterConfig(), mounts=with_mounts)
    assert pod == kept
    assert all(MAY_CHANGE.fullmatch(operation["path"]) for operation in decision.patch), decision.patch
    result = patched(pod, decision.patch)
    assert without_injected_fields(result) == without_injected_fields(pod)
    assert bool(decision.patch) == (decision.result == "injected")
    # Called again with its own result, it changes nothing more (reinvocationPolicy: IfNeeded).
    assert decide(result, FakeClusterView(now, nodes), ClusterConfig(), mounts=with_mounts).patch == []


@settings(deadline=None)
@given(pods, locations)
def test_the_patch_makes_what_inject_makes(pod: Any, now: Any) -> None:
    if "nonsense" in str(pod) or "nobody" in str(pod):
        return
    result = inject(pod, None, now)
    assert patched(pod, create_patch(pod, result)) == result


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "Secret"),
        (("metadata", "name"), "another"),
        (("metadata", "labels"), {"a": "b"}),
        (("metadata", "annotations", "other"), "y"),
        (("spec", "nodeName"), "n1"),
        (("spec", "containers", 0, "image"), "another"),
        (("spec", "containers", 0, "securityContext"), {"privileged": True}),
    ],
)
def test_a_change_elsewhere_is_an_error(path: Any, value: Any) -> None:
    pod: Any = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"other": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    changed = copy.deepcopy(pod)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    with pytest.raises(UnexpectedChange, match=str(path[-1])):
        create_patch(pod, changed)


def test_a_container_more_is_an_error() -> None:
    pod: Any = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    more: Any = {"metadata": {}, "spec": {"containers": [{"name": "c"}, {"name": "d"}]}}
    with pytest.raises(UnexpectedChange, match="containers"):
        create_patch(pod, more)
