"""The class for Store resources agrees with the CRD's schema."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator import crds
from entrepot_operator.kubernetes.store_spec import (
    ClusterSpec,
    NamedSecret,
    PublishSpec,
    SpillKeySecret,
    SpillSpec,
    StoreSpec,
    TokenSecret,
    api_field_name,
    parse_store,
)
from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.publisher.limits import Limits

DEFINITION = next(definition for definition in crds.definitions() if definition["spec"]["names"]["kind"] == "Store")
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]["properties"]


def store(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "entrepot.dev/v1alpha1",
        "kind": "Store",
        "metadata": {"name": "main"},
        "spec": {"image": "entrepot:1", "capacity": "8Gi", **spec},
    }


def test_the_class_has_the_fields_and_defaults_of_the_schema() -> None:
    assert {api_field_name(name) for name in StoreSpec.__dataclass_fields__} == set(SPEC)
    assert {api_field_name(name) for name in PublishSpec.__dataclass_fields__} == set(SPEC["publish"]["properties"])
    assert {api_field_name(name) for name in SpillSpec.__dataclass_fields__} == set(SPEC["spill"]["properties"])
    cluster = SPEC["cluster"]["properties"]
    assert {api_field_name(name) for name in ClusterSpec.__dataclass_fields__} == set(cluster)
    assert {name: cluster[name]["default"] for name in ("port", "memory")} == {
        name: getattr(ClusterSpec("etcd://host/name"), name) for name in ("port", "memory")
    }
    assert TokenSecret("name").key == cluster["tokenSecret"]["properties"]["key"]["default"]
    least = parse_store(store())
    for name in StoreSpec.__dataclass_fields__:
        if "default" in SPEC[api_field_name(name)] and name != "publish":
            assert getattr(least, name) == SPEC[api_field_name(name)]["default"], name
    for name in PublishSpec.__dataclass_fields__:
        assert getattr(least.publish, name) == SPEC["publish"]["properties"][api_field_name(name)]["default"], name


def test_publishers_and_injected_pods_have_the_same_defaults() -> None:
    limits, publish = Limits(), PublishSpec()
    for name in ("max_objects", "min_bytes", "writes_per_second", "lease_seconds"):
        assert getattr(limits, name) == getattr(publish, name), name
    assert StoreSpec("i", "1Gi").socket_folder == ClusterConfig().socket_folder


def test_a_store_with_everything_is_read() -> None:
    whole = store(
        imagePullSecrets=[{"name": "registry"}],
        capacity=1 << 33,
        runAsUser=2000,
        spill={"folder": "/var/entrepot", "quota": "100Gi", "compression": "zstd:3", "keySecret": {"name": "spill"}},
        defaultTTL=0,
        publish={"maxObjects": 5},
        cluster={
            "directory": "rediss://cache:6379/main?password_file=/run/entrepot-cluster/directory/password",
            "directorySecret": {"name": "redis"},
            "tokenSecret": {"name": "shared"},
            "tlsSecret": {"name": "certificate"},
            "memory": 1 << 29,
            "options": ["--lease-seconds=20"],
        },
        nodeSelector={"pool": "data"},
        tolerations=[{"key": "data", "operator": "Exists"}],
        maxUnavailable="10%",
    )
    jsonschema.validate(whole, SCHEMA)
    assert parse_store(whole) == StoreSpec(
        image="entrepot:1",
        capacity=str(1 << 33),
        image_pull_secrets=("registry",),
        run_as_user=2000,
        spill=SpillSpec("/var/entrepot", "100Gi", "zstd:3", SpillKeySecret("spill", "key")),
        default_ttl=0,
        publish=PublishSpec(max_objects=5),
        cluster=ClusterSpec(
            "rediss://cache:6379/main?password_file=/run/entrepot-cluster/directory/password",
            directory_secret=NamedSecret("redis"),
            token_secret=TokenSecret("shared"),
            tls_secret=NamedSecret("certificate"),
            memory=str(1 << 29),
            options=("--lease-seconds=20",),
        ),
        node_selector={"pool": "data"},
        tolerations=({"key": "data", "operator": "Exists"},),
        max_unavailable="10%",
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"capacity": ["8Gi"]},
        {"socketFolder": "/run/../etc"},
        {"socketFolder": "run"},
        {"runAsUser": 0},
        {"spill": {"folder": "/x", "compression": "zstd:40"}},
        {"spill": {"folder": "/x", "keySecret": {"key": "nameless"}}},
        {"spill": {"folder": "/x", "keySecret": {"name": "spill", "key": "../key"}}},
        {"publish": {"maxObjects": 100_000}},
        {"tolerations": [{"key": "a", "operator": "Like"}]},
    ],
)
def test_the_schema_refuses(spec: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(store(**spec), SCHEMA)


def test_a_store_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"entrepot\.dev/v2"):
        parse_store({**store(), "apiVersion": "entrepot.dev/v2"})
    with pytest.raises(InvalidArgument, match="'colour', which this version"):
        parse_store(store(colour="red"))
    with pytest.raises(InvalidArgument, match="cannot read Store"):
        parse_store({**store(), "spec": {"image": "x"}})
