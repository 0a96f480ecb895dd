"""Injection into every kind of workload, including Argo's."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from entrepot import EntrepotError, InvalidArgument
from entrepot_operator.placement import Document, PlacementConflict, inject_document
from hypothesis import given, settings
from hypothesis import strategies as st

A, B = "aa" * 20, "bb" * 20
LOCATIONS = {A: {"n1": 10, "n2": 4}, B: {"n3": 5}}
INJECTED = "entrepot.dev/injected"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def template(*objects: str, **annotations: str) -> dict[str, Any]:
    named = {f"entrepot.dev/{key}": value for key, value in annotations.items()}
    if objects:
        named["entrepot.dev/requires"] = ",".join(objects)
    return {"metadata": {"annotations": named}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


def workload(kind: str, pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "w"}}
    if kind == "Pod":
        return {**pod, **document, "metadata": {**pod["metadata"], "name": "w"}}
    if kind == "PodTemplate":
        return {**document, "template": pod}
    if kind == "CronJob":
        return {**document, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {**spec, "template": pod}}}}
    return {**document, "spec": {**spec, "template": pod}}


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    kind = document["kind"]
    if kind == "Pod":
        return document
    pod: dict[str, Any] = {
        "PodTemplate": lambda: document["template"],
        "CronJob": lambda: document["spec"]["jobTemplate"]["spec"]["template"],
    }.get(kind, lambda: document["spec"]["template"])()
    return pod


def hosts(pod: dict[str, Any]) -> list[str]:
    affinity = pod["spec"].get("affinity", pod.get("affinity", {}))
    return [
        value
        for term in affinity.get("nodeAffinity", {}).get(PREFERRED, [])
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == "kubernetes.io/hostname"
        for value in expression["values"]
    ]


KINDS = [
    "Pod",
    "PodTemplate",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "Job",
    "CronJob",
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pod_of_each_kind_is_injected(kind: str) -> None:
    given = workload(kind, template(A))
    kept = copy.deepcopy(given)
    done = inject_document(given, LOCATIONS)
    assert given == kept
    assert list(done.pods) == [f"{kind}/w"]
    assert hosts(pod_of(done.content)) == ["n1", "n2"]
    assert list(done.content) == list(given)
    pod_of(done.content)["spec"] = pod_of(given)["spec"]
    del pod_of(done.content)["metadata"]["annotations"][INJECTED]
    assert done.content == given


def test_a_daemon_set_goes_everywhere_and_gets_mounts_only() -> None:
    done = inject_document(workload("DaemonSet", template(A, locality="required", store="required")), LOCATIONS)
    spec = pod_of(done.content)["spec"]
    assert "affinity" not in spec
    assert spec["volumes"]


def test_other_kinds_stay_as_they_are() -> None:
    for other in ({"kind": "Service", "spec": {"template": 1}}, {"kind": "Kustomization"}, {"a": 1}, None, 5, "text"):
        assert inject_document(other, LOCATIONS) == Document(other)


def test_lists_are_looked_into() -> None:
    items = [workload("Job", template(A)), {"kind": "Service"}, workload("Pod", template(B))]
    done = inject_document({"apiVersion": "v1", "kind": "List", "items": items}, LOCATIONS)
    assert list(done.pods) == ["Job/w", "Pod/w"]
    assert [hosts(pod_of(manifest)) for manifest in (done.content["items"][0], done.content["items"][2])] == [
        ["n1", "n2"],
        ["n3"],
    ]


def test_only_one_workload() -> None:
    listed = {"kind": "List", "items": [workload("Job", template(A)), workload("Pod", template(B))]}
    assert list(inject_document(listed, LOCATIONS, only="pod/w").pods) == ["Pod/w"]


def test_what_is_asked_for_is_written_on_the_pods() -> None:
    given = workload("Job", template(B), completionMode="Indexed", completions=2)
    done = inject_document(given, LOCATIONS, required=[A], partitioned=[B])
    annotations = pod_of(done.content)["metadata"]["annotations"]
    assert annotations["entrepot.dev/requires"] == A
    assert annotations["entrepot.dev/partitioned"] == B
    assert inject_document(done.content, LOCATIONS).content == done.content


@pytest.mark.parametrize(
    ("kind", "spec", "expected_env"),
    [
        ("Job", {"completionMode": "Indexed", "completions": 3}, {"partitions": "3"}),
        ("CronJob", {"completionMode": "Indexed", "completions": 3}, {"partitions": "3"}),
        ("Job", {"completions": 3}, {}),
        ("StatefulSet", {"replicas": 4}, {"partitions": "4"}),
        ("StatefulSet", {}, {"partitions": "1"}),
        ("StatefulSet", {"replicas": 4, "ordinals": {"start": 2}}, {"partitions": "4", "first-ordinal": "2"}),
        ("Deployment", {"replicas": 4}, {}),
    ],
)
def test_pods_learn_among_how_many_partitions_are_dealt(
    kind: str, spec: dict[str, Any], expected_env: dict[str, str]
) -> None:
    done = inject_document(workload(kind, template(partitioned=f"{A},{B}"), **spec), LOCATIONS)
    annotations = pod_of(done.content)["metadata"]["annotations"]
    values = {key: annotations.get(f"entrepot.dev/{key}") for key in ("partitions", "first-ordinal")}
    assert {key: value for key, value in values.items() if value is not None} == expected_env
    assert set(hosts(pod_of(done.content))) == {"n1", "n2", "n3"}


def test_the_pod_of_an_indexed_job_finds_its_part() -> None:
    given = workload("Job", template(partitioned=f"{A},{B}"), completionMode="Indexed", completions=2)
    result = inject_document(given, LOCATIONS).content
    for index, expected in ((0, ["n1", "n2"]), (1, ["n3"])):
        pod = {"kind": "Pod", **copy.deepcopy(pod_of(result))}
        pod["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        assert hosts(inject_document(pod, LOCATIONS).content) == expected


def test_annotations_that_pods_do_not_inherit_are_reported() -> None:
    given = workload("Job", template())
    given["metadata"]["annotations"] = {"entrepot.dev/requires": A}
    done = inject_document(given, LOCATIONS)
    assert [reason.code for reason in done.pods["Job/w"].reasons] == ["misplaced"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "Deployment"},
        {"kind": "Deployment", "spec": []},
        {"kind": "Job", "spec": {"template": 1}},
        {"kind": "CronJob", "spec": {"jobTemplate": {}}},
        {"kind": "Pod", "metadata": {"name": "x"}},
        {"kind": "Pod", "metadata": [], "spec": {"containers": []}},
        {"kind": "Workflow"},
        {"kind": "Workflow", "spec": {"templates": {}}},
        {"kind": "Workflow", "spec": {"templates": [{"container": 5}]}},
        {"kind": "CronWorkflow", "spec": {}},
    ],
)
def test_broken_documents_are_typed_errors_that_name_them(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{wrong['kind']}/"):
        inject_document(wrong, LOCATIONS)


def test_strict_names_the_workload() -> None:
    given = workload("Job", template(A))
    pod_of(given)["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n9"}
    with pytest.raises(PlacementConflict, match=r"^Job/w: .*n1"):
        inject_document(given, LOCATIONS, strict=True)


def workflow(*templates: dict[str, Any], kind: str = "Workflow", **spec: Any) -> dict[str, Any]:
    whole = {"templates": list(templates), **spec}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"generateName": "etl-"},
        "spec": {"workflowSpec": whole, "schedules": ["@daily"]} if kind == "CronWorkflow" else whole,
    }


def step(name: str, *objects: str, **more: Any) -> dict[str, Any]:
    metadata = {"metadata": {"annotations": {"entrepot.dev/requires": ",".join(objects)}}} if objects else {}
    return {"name": name, "container": {"image": "x"}, **metadata, **more}


@pytest.mark.parametrize("kind", ["Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"])
def test_each_template_of_a_workflow_follows_its_own_inputs(kind: str) -> None:
    dag = {"name": "all", "dag": {"tasks": [{"name": "a", "template": "a"}]}}
    script = {"name": "b", "script": {"image": "x", "source": "print(1)"}}
    script["metadata"] = {"annotations": {"entrepot.dev/requires": B}}
    given = workflow(dag, step("a", A), script, kind=kind)
    done = inject_document(given, LOCATIONS)
    assert list(done.pods) == [f"{kind}/etl-/a", f"{kind}/etl-/b"]
    spec = done.content["spec"]["workflowSpec"] if kind == "CronWorkflow" else done.content["spec"]
    assert spec["templates"][0] == dag
    assert [hosts({"spec": item}) for item in spec["templates"][1:]] == [["n1", "n2"], ["n3"]]
    assert [item["mountPath"] for item in spec["templates"][2]["script"]["volumeMounts"]] == [
        "/run/entrepot",
        "/dev/shm",
    ]
    assert "name" not in spec["templates"][1]["container"]
    assert inject_document(done.content, LOCATIONS).content == done.content


def test_a_templates_affinity_takes_the_workflows_with_it() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    whole = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    given = workflow(step("a", A), affinity=whole)
    done = inject_document(given, LOCATIONS)
    affinity = done.content["spec"]["templates"][0]["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": [term]}
    assert hosts({"spec": done.content["spec"]["templates"][0]}) == ["n1", "n2"]
    assert done.content["spec"]["affinity"] == whole
    assert inject_document(done.content, LOCATIONS).content == done.content
    # If the workflow's affinity changes, the copy of the old one is removed: no author wrote it there.
    done.content["spec"]["affinity"] = {}
    anew = inject_document(done.content, LOCATIONS).content
    assert (
        "requiredDuringSchedulingIgnoredDuringExecution" not in anew["spec"]["templates"][0]["affinity"]["nodeAffinity"]
    )
    nothing = {"entrepot.dev/locality": "off", "entrepot.dev/store": "off"}
    done.content["spec"]["templates"][0]["metadata"]["annotations"] |= nothing
    assert "affinity" not in inject_document(done.content, LOCATIONS).content["spec"]["templates"][0]


def test_an_affinity_that_the_user_writes_later_stays() -> None:
    given = workflow(
        step("a", A), affinity={"podAffinity": {}}, podMetadata={"annotations": {"entrepot.dev/store": "off"}}
    )
    given["spec"]["templates"][0]["metadata"]["annotations"]["entrepot.dev/locality"] = "off"
    result = inject_document(given, LOCATIONS).content
    assert "affinity" not in result["spec"]["templates"][0]
    result["spec"]["templates"][0]["affinity"] = {"podAntiAffinity": {}}
    assert inject_document(result, LOCATIONS).content["spec"]["templates"][0]["affinity"] == {"podAntiAffinity": {}}


def test_a_workflows_volumes_are_not_repeated() -> None:
    given = workflow(step("a", A), volumes=[{"name": "entrepot-socket", "hostPath": {"path": "/mine"}}])
    volumes = inject_document(given, LOCATIONS).content["spec"]["templates"][0]["volumes"]
    assert [volume["name"] for volume in volumes] == ["entrepot-shared-memory"]


def test_the_node_selector_of_the_workflow_counts() -> None:
    given = workflow(step("a", A), nodeSelector={"kubernetes.io/hostname": "n2"})
    assert hosts({"spec": inject_document(given, LOCATIONS).content["spec"]["templates"][0]}) == ["n2"]


def test_parameters_are_left_to_the_time_when_the_pod_is_made() -> None:
    done = inject_document(workflow(step("a", "{{inputs.parameters.object}}")), LOCATIONS)
    assert [reason.code for reason in done.pods["Workflow/etl-/a"].reasons] == ["templated"]


def test_sidecars_sets_and_inline_templates() -> None:
    several = {
        "name": "set",
        "containerSet": {"containers": [{"name": "x"}, {"name": "y"}]},
        "sidecars": [{"name": "z"}],
    }
    inline = {"name": "steps", "steps": [[{"name": "one", "inline": {"container": {"image": "x"}}}]]}
    done = inject_document(workflow(several, inline), LOCATIONS)
    assert list(done.pods) == ["Workflow/etl-/set", "Workflow/etl-/steps/one"]
    template_with_sidecars, steps = done.content["spec"]["templates"]
    assert all(
        "env" in each_container
        for each_container in [
            *template_with_sidecars["containerSet"]["containers"],
            *template_with_sidecars["sidecars"],
        ]
    )
    assert "env" in steps["steps"][0][0]["inline"]["container"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "metadata", "spec", "annotations", "env"]), inner, max_size=3)
    ),
    max_leaves=5,
)
SEVERAL = [
    workload("Job", template(A, partitioned=B), completionMode="Indexed", completions=2),
    workload("CronJob", template(A, partitioned=B), completionMode="Indexed", completions=2),
    workload("StatefulSet", template(A, partitioned=B), ordinals={"start": 1}),
    workflow(
        step("a", A, sidecars=[{"name": "s"}], initContainers=[{"name": "i"}]),
        {"name": "set", "containerSet": {"containers": [{"name": "x"}]}, "metadata": {"annotations": {}}},
        {"name": "steps", "steps": [[{"name": "one", "inline": {"container": {"image": "x"}}}]]},
        {"name": "dag", "dag": {"tasks": [{"name": "one", "inline": {"container": {"image": "x"}}}]}},
        volumes=[{"name": "v"}],
        volumeClaimTemplates=[{"metadata": {"name": "c"}}],
        affinity={"podAffinity": {}},
        podMetadata={"annotations": {}},
        templateDefaults={"metadata": {"annotations": {}}, "volumes": []},
    ),
]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SEVERAL), st.booleans(), st.data())
def test_junk_in_any_place_is_taken_or_a_typed_error(document: Any, before: bool, data: Any) -> None:
    document = inject_document(document, LOCATIONS).content if before else copy.deepcopy(document)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(document)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(junk)
    given_document = copy.deepcopy(document)
    with contextlib.suppress(EntrepotError):
        inject_document(document, LOCATIONS)
    assert document == given_document, "what was given is not modified"
