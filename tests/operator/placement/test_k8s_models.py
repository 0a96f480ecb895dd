"""Pods as objects of the Kubernetes client: the result has the same classes as the input."""

from __future__ import annotations

import copy
import datetime
from typing import Any, ClassVar

import pytest
from entrepot_operator.placement import inject
from entrepot_operator.placement.formats import k8s_models
from hypothesis import given, settings
from hypothesis import strategies as st

client: Any = pytest.importorskip("kubernetes.client")
A = "aa" * 20
LOCATIONS = {A: {"n1": 10, "n2": 4}}


def sanitize(pod: Any) -> Any:
    return client.ApiClient().sanitize_for_serialization(pod)


def user_pod() -> Any:
    term = client.V1NodeSelectorTerm(
        match_expressions=[client.V1NodeSelectorRequirement(key="disk", operator="In", values=["ssd"])]
    )
    return client.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=client.V1ObjectMeta(
            name="train",
            labels={"app": "x"},
            annotations={"entrepot.dev/locality": "required"},
            creation_timestamp=datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        ),
        spec=client.V1PodSpec(
            containers=[
                client.V1Container(
                    name="main",
                    image="x",
                    env=[client.V1EnvVar(name="A", value="1")],
                    resources=client.V1ResourceRequirements(limits={"memory": "1Gi"}),
                    ports=[client.V1ContainerPort(container_port=80)],
                )
            ],
            affinity=client.V1Affinity(
                node_affinity=client.V1NodeAffinity(
                    required_during_scheduling_ignored_during_execution=client.V1NodeSelector(
                        node_selector_terms=[term]
                    )
                )
            ),
            tolerations=[client.V1Toleration(key="gpu", operator="Exists")],
        ),
    )


def test_the_client_s_pod_comes_back_as_such() -> None:
    pod = user_pod()
    result = inject(pod, [A], LOCATIONS)
    assert type(result) is type(pod)
    affinity = result.spec.affinity.node_affinity
    assert isinstance(affinity, client.V1NodeAffinity)
    term = affinity.preferred_during_scheduling_ignored_during_execution[0]
    assert isinstance(term, client.V1PreferredSchedulingTerm)
    assert isinstance(term.preference.match_expressions[0], client.V1NodeSelectorRequirement)
    assert isinstance(result.spec.volumes[0].host_path, client.V1HostPathVolumeSource)
    assert isinstance(result.spec.containers[0].env[1].value_from.field_ref, client.V1ObjectFieldSelector)
    assert result.metadata.creation_timestamp == pod.metadata.creation_timestamp


def test_it_is_the_same_as_that_of_a_dictionary() -> None:
    pod = user_pod()
    assert sanitize(inject(pod, [A], LOCATIONS)) == inject(sanitize(pod), [A], LOCATIONS)


def test_what_was_given_is_not_changed_nor_shared() -> None:
    pod = user_pod()
    before = copy.deepcopy(sanitize(pod))
    result = inject(pod, [A], LOCATIONS)
    result.spec.containers[0].env.clear()
    result.spec.containers[0].resources.limits["memory"] = "2Gi"
    result.metadata.labels["app"] = "y"
    result.spec.tolerations[0].key = "other"
    assert sanitize(pod) == before


def test_twice_is_once() -> None:
    once = inject(user_pod(), [A], LOCATIONS)
    assert sanitize(inject(once, [A], LOCATIONS)) == sanitize(once)


def test_a_pod_template_is_a_pod_too() -> None:
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[client.V1Container(name="main")]))
    result = inject(template, [A], LOCATIONS)
    assert isinstance(result, client.V1PodTemplateSpec)
    assert isinstance(result.metadata, client.V1ObjectMeta)
    assert template.metadata is None


def test_dictionaries_inside_stay_dictionaries() -> None:
    pod = client.V1Pod(
        metadata={"name": "p"},
        spec=client.V1PodSpec(containers=[client.V1Container(name="main", env=[{"name": "A", "value": "1"}])]),
    )
    result = inject(pod, [A], LOCATIONS)
    assert sanitize(result)["metadata"]["name"] == "p"
    assert sanitize(result)["spec"]["containers"][0]["env"][2] == {"name": "A", "value": "1"}
    assert sanitize(inject(result, [A], LOCATIONS)) == sanitize(result)


texts = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=4)


@settings(deadline=None)
@given(
    st.builds(
        lambda labels, names, selector, values, mode: client.V1Pod(
            metadata=client.V1ObjectMeta(labels=labels),
            spec=client.V1PodSpec(
                node_selector=selector,
                containers=[
                    client.V1Container(name=name, env=[client.V1EnvVar(name=value, value=value) for value in values])
                    for name in names
                ],
                volumes=[client.V1Volume(name="v", config_map=client.V1ConfigMapVolumeSource(default_mode=mode))],
            ),
        ),
        st.none() | st.dictionaries(texts, texts, max_size=2),
        st.lists(texts, min_size=1, max_size=3, unique=True),
        st.none() | st.dictionaries(texts, texts, max_size=2),
        st.lists(texts, max_size=2, unique=True),
        st.none() | st.integers(0, 0o777),
    )
)
def test_round_trip(pod: Any) -> None:
    there_and_back = k8s_models.to_original_type(pod, k8s_models.to_plain(pod))
    assert type(there_and_back) is type(pod)
    assert sanitize(there_and_back) == sanitize(pod)
    assert k8s_models.to_plain(pod) == sanitize(pod)


class LegacyVolume:
    """A model class as the client's generator wrote it before Pydantic."""

    openapi_types: ClassVar = {"name": "str", "items": "list[LegacyVolume]", "by_name": "dict(str, LegacyVolume)"}
    attribute_map: ClassVar = {"name": "name", "items": "items", "by_name": "byName"}

    def __init__(self, name: Any = None, items: Any = None, by_name: Any = None) -> None:
        self.name, self.items, self.by_name = name, items, by_name


def test_classes_of_older_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    package = types.ModuleType("legacy_client.models")
    package.LegacyVolume = LegacyVolume  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "legacy_client.models", package)
    monkeypatch.setattr(LegacyVolume, "__module__", "legacy_client.models.legacy_volume")
    given = LegacyVolume("a", [LegacyVolume("b")], {"k": LegacyVolume("c")})
    plain = k8s_models.to_plain(given)
    assert plain == {"name": "a", "items": [{"name": "b"}], "byName": {"k": {"name": "c"}}}
    plain["items"].append({"name": "d"})
    plain["byName"]["l"] = {"name": "e"}
    restored = k8s_models.to_original_type(given, plain)
    assert [(type(volume), volume.name) for volume in restored.items] == [(LegacyVolume, "b"), (LegacyVolume, "d")]
    assert type(restored.by_name["l"]) is LegacyVolume
    assert len(given.items) == 1
