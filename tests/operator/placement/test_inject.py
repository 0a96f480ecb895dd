"""Pods after ``inject``, case by case."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from entrepot import InvalidArgument, ObjectID
from entrepot_operator.placement import ClusterConfig, Injection, Node, PlacementConflict, explain, inject

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)
HOST, ZONE, STORE = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "entrepot.dev/store"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "train"}
    if annotations:
        metadata["annotations"] = {f"entrepot.dev/{key}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "x"}], **spec},
    }


def node(name: str, zone: str | None = None, store: bool = True, **more: Any) -> Node:
    labels = {HOST: name, **({ZONE: zone} if zone else {}), **({STORE: "ready"} if store else {})}
    return Node({**labels, **more.pop("labels", {})}, **more)


def host_weights(injected: dict[str, Any], key: str = HOST) -> dict[str, int]:
    """Weight by label value, over all preferred terms."""
    weights: dict[str, int] = {}
    for term in injected["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, []):
        for expression in term["preference"]["matchExpressions"]:
            if expression["key"] == key:
                weights |= dict.fromkeys(expression["values"], term["weight"])
    return weights


def terms(injected: dict[str, Any]) -> list[Any]:
    selector_terms: list[Any] = injected["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return selector_terms


def required_affinity(*selector_terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(selector_terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def codes(done: Injection) -> list[str]:
    return [reason.code for reason in done.reasons]


def test_bytes_weigh_nodes() -> None:
    result = inject(pod(), [A, B], {A: {"n1": 600, "n2": 600}, B: {"n2": 400, "n3": 1}})
    assert host_weights(result) == {"n2": 100, "n1": 60, "n3": 1}
    assert host_weights(result, STORE) == {"ready": 50}


def test_nodes_of_the_same_weight_share_a_term() -> None:
    result = inject(pod(), [A], {A: {"n2": 7, "n1": 7}})
    first = result["spec"]["affinity"]["nodeAffinity"][PREFERRED][0]
    assert first == {"weight": 100, "preference": {"matchExpressions": [expression(HOST, "In", "n1", "n2")]}}


def test_zones_weigh_less_than_hosts() -> None:
    nodes = {"n1": node("n1", "east"), "n2": node("n2", "west"), "n3": node("n3", "west"), "n4": node("n4", "west")}
    result = inject(pod(), [A], {A: {"n1": 100, "n2": 90, "n3": 90}}, nodes=nodes)
    assert host_weights(result) == {"n1": 100, "n2": 90, "n3": 90}
    assert host_weights(result, ZONE) == {"west": 20, "east": 11}


def test_the_zone_of_a_node_that_the_pod_may_not_use_still_draws_it() -> None:
    nodes = {"n1": node("n1", "east", taints=[{"key": "gpu", "effect": "NoSchedule"}]), "n2": node("n2", "east")}
    done = explain(pod(), [A], {A: {"n1": 100}}, nodes=nodes)
    assert (host_weights(done.pod), host_weights(done.pod, ZONE)) == ({}, {"east": 20})
    assert codes(done) == ["conflict"]


def test_a_label_tells_the_host_where_it_differs_from_the_nodes_name() -> None:
    result = inject(pod(), [A], {A: {"n1": 1}}, nodes={"n1": Node({HOST: "ip-10-0-0-1"})})
    assert host_weights(result) == {"ip-10-0-0-1": 100}
    done = explain(pod(), [A], {A: {"n1": 1}}, nodes={"n1": Node({})})
    assert "unlabelled-node" in codes(done)


def test_many_nodes_are_bounded() -> None:
    done = explain(pod(), [A], {A: {f"n{place}": 1000 + place for place in range(300)}})
    assert len(host_weights(done.pod)) == 100
    assert "n299" in host_weights(done.pod)
    assert "bounded" in codes(done)


def test_keys_may_be_object_ids() -> None:
    assert inject(pod(), [ObjectID(A)], {ObjectID(A): {"n1": 1}}) == inject(pod(), [A.upper()], {A: {"n1": 1}})


def test_annotations_name_objects_too() -> None:
    given = pod({"requires": f"{A}, {B}"})
    assert host_weights(inject(given, None, {A: {"n1": 5}, B: {"n2": 10}})) == {"n2": 100, "n1": 50}
    assert host_weights(inject(given, [C], {A: {"n1": 5}, C: {"n3": 10}})) == {"n3": 100, "n1": 50}


def test_required_binds_to_the_nodes_that_hold_everything() -> None:
    locations = {A: {"n1": 1, "n2": 1}, B: {"n2": 9, "n3": 9}}
    done = explain(pod({"locality": "required"}), [A, B], locations)
    assert terms(done.pod) == [{"matchExpressions": [expression(HOST, "In", "n2")]}]
    assert done.required == ["n2"]


def test_required_without_a_node_that_holds_everything_leaves_the_pod_free() -> None:
    done = explain(pod({"locality": "required"}), [A, B], {A: {"n1": 1}, B: {"n2": 9}})
    assert REQUIRED not in done.pod["spec"]["affinity"]["nodeAffinity"]
    assert "no-holder" in codes(done)
    assert host_weights(done.pod) == {"n2": 100, "n1": 11}


def test_required_is_added_to_each_of_the_users_terms() -> None:
    users = required_affinity(
        {"matchExpressions": [expression("disk", "In", "ssd")]},
        {"matchFields": [expression("metadata.name", "In", "n2")]},
        {},
    )
    given = pod({"locality": "required", "store": "required"}, affinity=users)
    result = inject(given, [A], {A: {"n1": 1, "n2": 1}})
    ours = [expression(HOST, "In", "n1", "n2"), expression(STORE, "In", "ready")]
    assert terms(result) == [
        {"matchExpressions": [expression("disk", "In", "ssd"), *ours]},
        {"matchFields": [expression("metadata.name", "In", "n2")], "matchExpressions": ours},
        {},  # matches nothing in Kubernetes; with our expressions it would match something
    ]


def test_the_users_preferences_stay_in_front() -> None:
    mine = {"weight": 3, "preference": {"matchExpressions": [expression("disk", "Exists")]}}
    result = inject(pod(affinity={"nodeAffinity": {PREFERRED: [mine]}, "podAntiAffinity": {}}), [A], {A: {"n1": 1}})
    assert result["spec"]["affinity"]["nodeAffinity"][PREFERRED][0] == mine
    assert result["spec"]["affinity"]["podAntiAffinity"] == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {HOST: "n9"}},
        {"affinity": required_affinity({"matchExpressions": [expression(HOST, "In", "n9")]})},
        {"affinity": required_affinity({"matchExpressions": [expression(HOST, "NotIn", "n1")]})},
        {"affinity": required_affinity({"matchFields": [expression("metadata.name", "In", "n9")]})},
        {"affinity": required_affinity({"matchExpressions": [expression(HOST, "DoesNotExist")]})},
    ],
)
def test_constraints_that_contradict_the_data_win_and_are_reported(spec: dict[str, Any]) -> None:
    given = pod({"locality": "required"}, **spec)
    done = explain(given, [A], {A: {"n1": 1}})
    assert done.required == []
    assert host_weights(done.pod) == {}
    assert done.pod["spec"].get("nodeSelector") == spec.get("nodeSelector")
    if "affinity" in spec:
        assert terms(done.pod) == terms(given)
    assert "conflict" in codes(done)
    assert "n1" in done.pod["metadata"]["annotations"]["entrepot.dev/injected"]
    with pytest.raises(PlacementConflict, match="n1"):
        inject(given, [A], {A: {"n1": 1}}, strict=True)


def test_labels_that_are_not_known_exclude_nothing() -> None:
    done = explain(pod(nodeSelector={"disk": "ssd"}), [A], {A: {"n1": 1}})
    assert (host_weights(done.pod), codes(done)) == ({"n1": 100}, [])
    done = explain(pod(nodeSelector={"disk": "ssd", HOST: "n2"}), [A], {A: {"n1": 1, "n2": 1}})
    assert host_weights(done.pod) == {"n2": 100}  # what is known still counts


@pytest.mark.parametrize(
    ("operator", "values", "label", "fits"),
    [
        ("In", ("ssd",), "ssd", True),
        ("In", ("ssd",), "hdd", False),
        ("In", ("ssd",), None, False),
        ("NotIn", ("ssd",), "ssd", False),
        ("NotIn", ("ssd",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), "x", False),
        ("DoesNotExist", (), None, True),
        ("Gt", ("4",), "5", True),
        ("Gt", ("4",), "4", False),
        ("Lt", ("4",), "3", True),
        ("Lt", ("4",), "many", False),
        ("Lt", ("4",), None, False),
    ],
)
def test_known_labels_are_judged_as_kubernetes_does(
    operator: str, values: tuple[str, ...], label: str | None, fits: bool
) -> None:
    users = required_affinity({"matchExpressions": [expression("disk", operator, *values)]})
    nodes = {"n1": node("n1", labels={} if label is None else {"disk": label})}
    assert (host_weights(inject(pod(affinity=users), [A], {A: {"n1": 1}}, nodes=nodes)) == {"n1": 100}) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
    ],
)
def test_taints_keep_pods_off_that_do_not_tolerate_them(toleration: dict[str, str] | None, fits: bool) -> None:
    nodes = {"n1": node("n1", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])}
    given = pod({"locality": "required"}, **({"tolerations": [toleration]} if toleration else {}))
    done = explain(given, [A], {A: {"n1": 1}}, nodes=nodes)
    assert done.required == (["n1"] if fits else [])


def test_what_keeps_a_pod_from_its_inputs_is_said() -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    drained = {"key": "drain", "effect": "NoExecute"}
    nodes = {
        "n1": node("n1", taints=taints),
        "n2": node("n2", taints=taints),
        "n3": node("n3", taints=[drained, *taints]),
        "n4": node("n4", unschedulable=True),
        "n5": node("n5"),
        "n6": node("n6"),
    }
    given = pod(nodeSelector={HOST: "n6"})
    done = explain(given, [A], {A: dict.fromkeys(nodes, 1)}, nodes=nodes)
    (text,) = (warning.text for warning in done.reasons if warning.code == "excluded-nodes")
    assert text == (
        "the pod cannot run on nodes that hold inputs: n4 (cordoned); n5 (excluded by the pod's own node selector or "
        "affinity); n1, n2 (the pod does not tolerate the taint gpu=yes:NoSchedule); n3 (the pod does not tolerate the "
        "taints drain:NoExecute, gpu=yes:NoSchedule)"
    )


def test_a_cordoned_node_is_never_required() -> None:
    done = explain(pod({"locality": "required"}), [A], {A: {"n1": 1}}, nodes={"n1": node("n1", unschedulable=True)})
    assert done.required == []


def test_an_affinity_that_matches_nothing_stays_so() -> None:
    empty: list[list[Any]] = [[], [{}]]
    for selector_terms in empty:
        given = pod({"locality": "required", "store": "required"}, affinity=required_affinity(*selector_terms))
        done = explain(given, [A], {A: {"n1": 1}})
        assert terms(done.pod) == selector_terms
        assert codes(done) == ["conflict"]


def test_a_store_is_required_only_where_the_pod_may_find_one() -> None:
    given = pod({"store": "required"}, nodeSelector={HOST: "n1"})
    with_store = inject(given, [], {}, nodes={"n1": node("n1"), "n2": node("n2")})
    assert terms(with_store) == [{"matchExpressions": [expression(STORE, "In", "ready")]}]
    done = explain(given, [], {}, nodes={"n1": node("n1", store=False), "n2": node("n2")})
    assert REQUIRED not in done.pod["spec"]["affinity"]["nodeAffinity"]
    assert (codes(done), done.store, host_weights(done.pod, STORE)) == (["no-store"], "preferred", {"ready": 50})


def test_a_store_that_the_user_rules_out_is_not_required() -> None:
    users = required_affinity({"matchExpressions": [expression(STORE, "NotIn", "ready")]})
    done = explain(pod({"store": "required"}, affinity=users), [], {})
    assert terms(done.pod) == terms(pod(affinity=users))
    assert "no-store" in codes(done)


def test_a_store_that_every_node_has_is_not_preferred() -> None:
    nodes = {"n1": node("n1"), "n2": node("n2")}
    assert host_weights(inject(pod(), [A], {A: {"n1": 1}}, nodes=nodes), STORE) == {}
    nodes["n3"] = node("n3", store=False)
    assert host_weights(inject(pod(), [A], {A: {"n1": 1}}, nodes=nodes), STORE) == {"ready": 50}


def test_nodes_that_are_gone_draw_nobody() -> None:
    done = explain(pod({"locality": "required"}), [A], {A: {"n1": 1, "n2": 1}}, nodes={"n2": node("n2")})
    assert (done.required, host_weights(done.pod), codes(done)) == (["n2"], {"n2": 100}, ["stale-nodes"])


def test_unknown_and_lost_objects_are_reported() -> None:
    done = explain(pod(), [A, B, C], {A: {"n1": 1}, B: {}})
    assert codes(done) == ["unknown-objects", "lost-objects"]
    assert C in done.reasons[0].text
    assert B in done.reasons[1].text
    assert host_weights(done.pod) == {"n1": 100}
    with pytest.raises(PlacementConflict, match=C):
        inject(pod(), [A, C], {A: {"n1": 1}}, strict=True)


def test_a_bound_pod_keeps_its_affinity() -> None:
    done = explain(pod(nodeName="n7"), [A], {A: {"n1": 1}})
    assert "affinity" not in done.pod["spec"]
    assert done.pod["spec"]["nodeName"] == "n7"
    assert codes(done) == ["bound"]
    assert done.pod["spec"]["volumes"]


def test_mounts_and_environment() -> None:
    given = pod(initContainers=[{"name": "first"}])
    spec = inject(given, [], {}, site=ClusterConfig(socket_folder="/var/lib/entrepot", shared_memory="2Gi"))["spec"]
    assert spec["volumes"] == [
        {"name": "entrepot-socket", "hostPath": {"path": "/var/lib/entrepot", "type": "DirectoryOrCreate"}},
        {"name": "entrepot-shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
    ]
    for container in (spec["containers"][0], spec["initContainers"][0]):
        assert container["volumeMounts"] == [
            {"name": "entrepot-socket", "mountPath": "/var/lib/entrepot", "readOnly": True},
            {"name": "entrepot-shared-memory", "mountPath": "/dev/shm"},
        ]
        assert container["env"] == [
            {"name": "ENTREPOT_ADDRESS", "value": "unix:///var/lib/entrepot/store.sock"},
            {"name": "ENTREPOT_NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
        ]


def test_what_the_user_mounts_and_sets_stays() -> None:
    main = {
        "name": "main",
        "env": [{"name": "ENTREPOT_ADDRESS", "value": "unix:///mine"}],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes = [{"name": "shm", "emptyDir": {}}, {"name": "entrepot-socket", "hostPath": {"path": "/mine"}}]
    done = explain(pod(containers=[main], volumes=volumes), [], {})
    spec = done.pod["spec"]
    assert spec["volumes"] == volumes
    assert spec["containers"][0]["env"][1] == main["env"][0]
    assert [item["name"] for item in spec["containers"][0]["env"]] == ["ENTREPOT_NODE", "ENTREPOT_ADDRESS"]
    assert [item["mountPath"] for item in spec["containers"][0]["volumeMounts"]] == ["/dev/shm", "/run/entrepot"]
    assert codes(done) == ["own-address", "own-volume"]


def test_only_named_containers_get_mounts() -> None:
    given = pod({"containers": "main"}, containers=[{"name": "main"}, {"name": "proxy"}])
    containers = inject(given, [], {})["spec"]["containers"]
    assert "env" in containers[0]
    assert containers[1] == {"name": "proxy"}
    with pytest.raises(InvalidArgument, match="'other'"):
        inject(pod({"containers": "other"}), [], {})


def test_everything_can_be_switched_off() -> None:
    given = pod({"locality": "off", "store": "off", "mounts": "off"})
    assert inject(given, [A], {A: {"n1": 1}}) == given


def test_windows_pods_stay_as_they_are() -> None:
    done = explain(pod(os={"name": "windows"}), [A], {A: {"n1": 1}})
    assert codes(done) == ["windows"]
    assert done.pod["spec"] == pod(os={"name": "windows"})["spec"]


def test_shared_memory_can_be_left_alone() -> None:
    spec = inject(pod(), [], {}, site=ClusterConfig(shared_memory=None))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["entrepot-socket"]


OBJECTS = [f"{place:02x}" * 20 for place in range(6)]
SPREAD = {oid: {f"n{place}": 10} for place, oid in enumerate(OBJECTS)}


@pytest.mark.parametrize(
    "labels",
    [
        {"batch.kubernetes.io/job-completion-index": "4"},
        {"apps.kubernetes.io/pod-index": "4"},
        {"statefulset.kubernetes.io/pod-name": "web-4"},
    ],
)
def test_a_pod_of_an_indexed_set_follows_its_own_partition(labels: dict[str, str]) -> None:
    given = pod()
    given["metadata"]["labels"] = labels
    done = explain(given, [], SPREAD, partitioned=OBJECTS)
    assert (host_weights(done.pod), done.ordinal, done.pods) == ({"n4": 100}, 4, 6)


def test_partitions_are_dealt_in_blocks() -> None:
    preferred = []
    for ordinal in range(4):
        given = pod({"partitioned": ",".join(OBJECTS), "partitions": "4", "first-ordinal": "10"})
        given["metadata"]["labels"] = {"apps.kubernetes.io/pod-index": str(10 + ordinal)}
        preferred.append(sorted(host_weights(inject(given, [], SPREAD))))
    assert preferred == [["n0"], ["n1", "n2"], ["n3"], ["n4", "n5"]]


def test_a_pod_beyond_the_partitions_has_none() -> None:
    given = pod({"partitioned": ",".join(OBJECTS)})
    given["metadata"]["labels"] = {"apps.kubernetes.io/pod-index": "6"}
    done = explain(given, [], SPREAD)
    assert (host_weights(done.pod), codes(done)) == ({}, ["no-part"])


def test_a_pod_without_an_ordinal_is_drawn_to_all_partitions() -> None:
    assert set(host_weights(inject(pod(), [], SPREAD, partitioned=OBJECTS))) == {f"n{place}" for place in range(6)}


def test_the_record_says_what_was_done_and_why() -> None:
    done = explain(pod(), [A, B], {A: {"n1": 5}})
    record = json.loads(done.pod["metadata"]["annotations"]["entrepot.dev/injected"])
    assert record["version"] == 1
    assert record["objects"] == {"required": 2, "located": 1, "bytes": 5}
    assert record["nodes"] == [["host", "n1", 5, 100]]
    assert record["reasons"] == [["unknown-objects", f"no location is known for {B}"]]


def test_injecting_again_follows_the_data() -> None:
    users = required_affinity({"matchExpressions": [expression("disk", "In", "ssd")]})
    given = pod({"locality": "required"}, affinity=users)
    first = inject(given, [A], {A: {"n1": 1}})
    assert inject(first, [A], {A: {"n2": 2}}) == inject(given, [A], {A: {"n2": 2}})


def test_injecting_again_leaves_what_others_added_behind_where_it_is() -> None:
    result = inject(pod(), [A], {A: {"n1": 1}})
    main = result["spec"]["containers"][0]
    main["env"].append({"name": "MINE", "value": "$(ENTREPOT_ADDRESS)"})  # refers to a variable defined before it
    main["volumeMounts"].append({"name": "token", "mountPath": "/var/run/secrets"})
    result["spec"]["volumes"].append({"name": "token", "emptyDir": {}})
    main["terminationMessagePath"] = "/dev/termination-log"
    assert inject(result, [A], {A: {"n1": 1}}) == result
    moved = inject(result, [A], {A: {"n2": 1}})
    assert host_weights(moved) == {"n2": 100}
    assert moved["spec"]["containers"][0]["env"] == main["env"]


def test_off_takes_out_what_was_injected() -> None:
    given = pod(affinity={"nodeAffinity": {}})
    result = inject(given, [A], {A: {"n1": 1}})
    result["metadata"]["annotations"] |= {f"entrepot.dev/{key}": "off" for key in ("locality", "store", "mounts")}
    undone = inject(result, None, {})
    assert undone["spec"] == given["spec"]


def test_nothing_that_was_given_is_changed_or_shared() -> None:
    given = pod({"locality": "required"}, affinity=required_affinity({"matchExpressions": [expression("a", "Exists")]}))
    before = copy.deepcopy(given)
    result = inject(given, [A], {A: {"n1": 1}})
    result["spec"]["containers"][0]["env"].clear()
    terms(result)[0]["matchExpressions"].clear()
    assert given == before
