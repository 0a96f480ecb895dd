"""Properties of ``inject`` that hold for any pod, objects and locations."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from entrepot import EntrepotError
from entrepot_operator.placement import Node, explain, inject
from entrepot_operator.placement.nodes import Constraints
from hypothesis import given, settings
from hypothesis import strategies as st

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE, STORE = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "entrepot.dev/store"
OBJECTS = [f"{place:02x}" * 20 for place in range(8)]
NAMES = ["n1", "n2", "n3", "n4"]

ids = st.lists(st.sampled_from(OBJECTS), max_size=8)
locations = st.dictionaries(
    st.sampled_from(OBJECTS), st.dictionaries(st.sampled_from([*NAMES, "gone"]), st.integers(0, 2**50), max_size=4)
)
expressions: Any = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from([HOST, ZONE, STORE, "disk"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from([*NAMES, "east", "ready", "ssd"]), min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from([HOST, ZONE, STORE, "disk"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
fields = st.builds(
    lambda name: {"key": "metadata.name", "operator": "In", "values": [name]}, st.sampled_from([*NAMES, "n9"])
)
selector_terms: Any = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions, min_size=1, max_size=3),
        "matchFields": st.lists(fields, min_size=1, max_size=1),
    },
)
preferred_terms = st.builds(
    lambda weight, term: {"weight": weight, "preference": term}, st.integers(1, 100), selector_terms
)
node_affinities: Any = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": st.lists(selector_terms, max_size=3)}),
        PREFERRED: st.lists(preferred_terms, max_size=3),
    },
)
affinities: Any = st.fixed_dictionaries(
    {}, optional={"nodeAffinity": node_affinities, "podAffinity": st.just({PREFERRED: []})}
)
variables: Any = st.builds(
    lambda name: {"name": name, "value": "x"}, st.sampled_from(["A", "ENTREPOT_ADDRESS", "ENTREPOT_NODE"])
)
mounts: Any = st.builds(
    lambda path: {"name": "mine", "mountPath": path}, st.sampled_from(["/data", "/dev/shm", "/run/entrepot"])
)


def unique(entries: Any, key: str) -> Any:
    return st.lists(entries, max_size=2, unique_by=lambda entry: entry[key])


def container(name: str) -> Any:
    return st.fixed_dictionaries(
        {"name": st.just(name)},
        optional={"env": unique(variables, "name"), "volumeMounts": unique(mounts, "mountPath")},
    )


pod_annotations: Any = st.fixed_dictionaries(
    {},
    optional={
        "entrepot.dev/requires": ids.map(",".join),
        "entrepot.dev/partitioned": ids.map(",".join),
        "entrepot.dev/locality": st.sampled_from(["preferred", "required", "off"]),
        "entrepot.dev/store": st.sampled_from(["preferred", "required", "off"]),
        "entrepot.dev/mounts": st.sampled_from(["on", "off"]),
        "other": st.just("x"),
    },
)
volumes: Any = st.lists(
    st.sampled_from(["mine", "entrepot-socket"]).map(lambda name: {"name": name, "emptyDir": {}}),
    max_size=2,
    unique_by=lambda volume: str(volume["name"]),
)
metadata: Any = st.fixed_dictionaries(
    {}, optional={"annotations": pod_annotations, "labels": st.just({"apps.kubernetes.io/pod-index": "1"})}
)
own_parts: dict[str, Any] = {
    "initContainers": container("first").map(lambda item: [item]),
    "affinity": affinities,
    "nodeSelector": st.dictionaries(st.sampled_from([HOST, "disk"]), st.sampled_from(NAMES), max_size=1),
    "volumes": volumes,
}
containers: Any = st.tuples(container("main"), container("other")).map(list)
specs: Any = st.fixed_dictionaries({"containers": containers}, optional=own_parts)
pods: Any = st.fixed_dictionaries({"spec": specs}, optional={"metadata": metadata})
clusters = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(NAMES),
        st.fixed_dictionaries(
            {}, optional={ZONE: st.sampled_from(["east", "west"]), STORE: st.just("ready"), "disk": st.just("ssd")}
        ),
    ).map(lambda names: {name: Node({HOST: name, **labels}) for name, labels in names.items()}),
)


# All combinations of the labels that a generated pod can refer to.
ANY_NODES = [
    (name, Node({key: value for key, value in labels.items() if value is not None}))
    for name in [*NAMES, "n9", "gone"]
    for zone in ("east", "n1", "ready", "ssd", None)
    for store in ("ready", None)
    for disk in (*NAMES, "ssd", "east", "ready", None)
    for labels in ({HOST: name, ZONE: zone, STORE: store, "disk": disk},)
]


def required_of(pod: dict[str, Any]) -> Any:
    return pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_injecting_twice_is_injecting_once(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    once = inject(pod, required, places, nodes=nodes)
    assert inject(once, required, places, nodes=nodes) == once


@settings(deadline=None)
@given(pods, ids, ids, locations, locations, clusters)
def test_injecting_anew_leaves_nothing_of_before(
    pod: Any, first: Any, second: Any, before: Any, after: Any, nodes: Any
) -> None:
    moved = inject(inject(pod, first, before), second, after, nodes=nodes)
    assert moved == inject(pod, second, after, nodes=nodes)


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_the_pod_that_was_given_stays_as_it_is(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    kept = copy.deepcopy((pod, required, places))
    inject(pod, required, places, nodes=nodes)
    assert (pod, required, places) == kept


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_the_users_terms_are_all_there_in_their_order(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    result = inject(pod, required, places, nodes=nodes)
    before, after = required_of(pod), required_of(result)
    if before is not None:
        assert len(after["nodeSelectorTerms"]) == len(before["nodeSelectorTerms"])
        for mine, theirs in zip(before["nodeSelectorTerms"], after["nodeSelectorTerms"], strict=True):
            count = len(mine.get("matchExpressions", []))
            assert theirs.get("matchExpressions", [])[:count] == mine.get("matchExpressions", [])
            assert theirs.get("matchFields") == mine.get("matchFields")
            assert mine or not theirs  # an empty term, which matches nothing, stays empty
    mine = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])
    theirs = result["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])
    assert theirs[: len(mine)] == mine
    for key in pod["spec"].get("affinity", {}):
        if key != "nodeAffinity":
            assert result["spec"]["affinity"][key] == pod["spec"]["affinity"][key]


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_everything_else_of_the_user_stays(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    result = inject(pod, required, places, nodes=nodes)
    assert result["spec"].get("nodeSelector") == pod["spec"].get("nodeSelector")
    assert result["spec"].get("volumes", [])[: len(pod["spec"].get("volumes", []))] == pod["spec"].get("volumes", [])
    for kind in ("containers", "initContainers"):
        for mine, theirs in zip(pod["spec"].get(kind, []), result["spec"].get(kind, []), strict=True):
            assert theirs["name"] == mine["name"]
            for key in ("env", "volumeMounts"):
                users = [entry for entry in theirs.get(key, []) if entry in mine.get(key, [])]
                assert users == mine.get(key, [])
                names = [entry.get("mountPath") or entry["name"] for entry in theirs.get(key, [])]
                assert len(names) == len(set(names))
    volumes = [entry["name"] for entry in result["spec"].get("volumes", [])]
    assert len(volumes) == len(set(volumes))


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_a_node_is_never_named(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    assert "nodeName" not in inject(pod, required, places, nodes=nodes)["spec"]


@settings(deadline=None)
@given(pods, ids, locations, clusters)
def test_weights_are_what_kubernetes_takes(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    result = inject(pod, required, places, nodes=nodes)
    for term in result["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, []):
        assert 1 <= term["weight"] <= 100


@settings(max_examples=400, deadline=None)
@given(pods, ids, locations, clusters)
def test_a_pod_that_could_run_somewhere_still_can(pod: Any, required: Any, places: Any, nodes: Any) -> None:
    """Checked on the cluster's nodes if known, or else on all combinations of labels that the pod can refer to."""
    done = explain(pod, required, places, nodes=nodes)
    judged = ANY_NODES if nodes is None else list(nodes.items())

    def somewhere(pod_term: Any) -> bool:
        terms = required_of(pod_term)
        constraints = Constraints(pod_term["spec"], None if terms is None else terms["nodeSelectorTerms"])
        return any(constraints.allows(name, node) for name, node in judged)

    if somewhere(pod):
        assert somewhere(done.pod)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "key", "operator", "values", "x", "env", "metadata"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(pods, st.data())
def test_junk_in_any_place_is_taken_or_a_typed_error(pod: Any, data: Any) -> None:
    pod = copy.deepcopy(inject(pod, OBJECTS[:1], {OBJECTS[0]: {"n1": 1}}))
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(pod)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(junk)
    given_pod = copy.deepcopy(pod)
    with contextlib.suppress(EntrepotError):
        inject(pod, OBJECTS, {OBJECTS[1]: {"n2": 4}}, nodes={"n2": Node({HOST: "n2"})})
    assert pod == given_pod, "what was given is not modified"
