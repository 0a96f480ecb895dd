"""Whatever the pod, the webhook changes only affinity, mounts, environment and its own annotation."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from entrepot_io.placement import Node, Site, inject
from entrepot_operator.admission.patching import ForeignChange, difference
from entrepot_operator.admission.reviewing import decide
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
        "env": st.none() | st.lists(variables, max_size=2, unique_by=lambda one: str(one["name"])),
        "volumeMounts": st.lists(mounts, max_size=2, unique_by=lambda one: str(one["mountPath"])),
        "resources": st.just({"limits": {"cpu": "1"}}),
    }
    return st.fixed_dictionaries({"name": st.just(name), "image": st.just("i")}, optional=own)


listed = st.lists(st.sampled_from([*OBJECTS, "ff" * 20]), max_size=4).map(",".join)
wishes = st.sampled_from(["preferred", "required", "off", "nonsense"])
asked: Any = st.fixed_dictionaries(
    {},
    optional={
        "entrepot.dev/requires": listed,
        "entrepot.dev/partitioned": listed,
        "entrepot.dev/locality": wishes,
        "entrepot.dev/store": wishes,
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
        "initContainers": container("first").map(lambda one: [one]),
        "affinity": st.none() | terms.map(lambda one: {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": one}}}),
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
        "annotations": st.none() | asked,
        "labels": st.just({"batch.kubernetes.io/job-completion-index": "1"}),
        "ownerReferences": owners,
    },
)
pods: Any = st.fixed_dictionaries({"kind": st.just("Pod"), "metadata": metadata, "spec": specs})
places: Any = st.dictionaries(
    st.sampled_from(OBJECTS), st.dictionaries(st.sampled_from(["n1", "n2", "gone"]), st.integers(1, 100), max_size=2)
)


class Known:
    def __init__(self, found: Any, nodes: Any) -> None:
        self.synced = True
        self._found = found
        self._nodes = nodes

    def locations(self, ids: Any) -> Any:
        return {one: self._found[one] for one in ids if one in self._found}

    def nodes(self) -> Any:
        return self._nodes


def patched(pod: Any, operations: Any) -> Any:
    """Apply a patch as an API server would (RFC 6902: add, replace, remove)."""
    made = copy.deepcopy(pod)
    for one in operations:
        *steps, last = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
        holder = made
        for step in steps:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if one["op"] in ("replace", "remove"):
            assert last in holder, one
        if one["op"] == "remove":
            del holder[last]
        else:
            holder[last] = copy.deepcopy(one["value"])
    return made


def rest(pod: Any) -> Any:
    """The parts of a pod that the webhook must not change."""
    left = copy.deepcopy(pod)
    for key in ("affinity", "volumes"):
        left["spec"].pop(key, None)
    for kind in ("containers", "initContainers"):
        for one in left["spec"].get(kind) or []:
            one.pop("env", None)
            one.pop("volumeMounts", None)
    own = dict(left["metadata"].pop("annotations", None) or {})
    own.pop("entrepot.dev/injected", None)
    return left, own


@settings(max_examples=400, deadline=None)
@given(pods, places, places, st.sampled_from([None, NODES]), st.booleans(), st.booleans())
def test_nothing_else_is_ever_patched(
    pod: Any, before: Any, now: Any, nodes: Any, injected: bool, with_mounts: bool
) -> None:
    if injected and "nonsense" not in str(pod) and "nobody" not in str(pod):
        pod = inject(pod, None, before)
    kept = copy.deepcopy(pod)
    verdict = decide(pod, Known(now, nodes), Site(), mounts=with_mounts)
    assert pod == kept
    assert all(MAY_CHANGE.fullmatch(one["path"]) for one in verdict.patch), verdict.patch
    made = patched(pod, verdict.patch)
    assert rest(made) == rest(pod)
    assert bool(verdict.patch) == (verdict.result == "injected")
    # Called again with its own result, it changes nothing more (reinvocationPolicy: IfNeeded).
    assert decide(made, Known(now, nodes), Site(), mounts=with_mounts).patch == []


@settings(deadline=None)
@given(pods, places)
def test_the_patch_makes_what_inject_makes(pod: Any, now: Any) -> None:
    if "nonsense" in str(pod) or "nobody" in str(pod):
        return
    made = inject(pod, None, now)
    assert patched(pod, difference(pod, made)) == made


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
    with pytest.raises(ForeignChange, match=str(path[-1])):
        difference(pod, changed)


def test_a_container_more_is_an_error() -> None:
    pod: Any = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    more: Any = {"metadata": {}, "spec": {"containers": [{"name": "c"}, {"name": "d"}]}}
    with pytest.raises(ForeignChange, match="containers"):
        difference(pod, more)
