"""The CRDs have what their readers require, and resources that we write conform to them."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from entrepot.cli import main
from entrepot.ids import ObjectID
from entrepot_operator import crds
from entrepot_operator.kubernetes.objects import (
    API_VERSION,
    MAX_MEMBERS,
    MAX_NAMES,
    Condition,
    GlobalObject,
    LocalObject,
    lease_name,
)

A, B = ObjectID("aa" * 20), ObjectID("bb" * 20)
DEFINITIONS = {definition["spec"]["names"]["kind"]: definition for definition in crds.definitions()}
CONDITION = Condition("Available", True, "InMemory", "it is there")


def schema_of(kind: str) -> dict[str, Any]:
    """A CRD's schema, changed so that fields that the API server would prune are errors."""
    schema: dict[str, Any] = copy.deepcopy(DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}}

    def close(part: Any) -> None:
        if isinstance(part, dict):
            if part.get("type") == "object" and "additionalProperties" not in part:
                part["additionalProperties"] = False
            for value in part.values():
                close(value)
        elif isinstance(part, list):
            for value in part:
                close(value)

    close(schema)
    return schema


def every(part: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """A schema and all schemas in it, with their paths."""
    parts = [(path, part)]
    for name, each in (part.get("properties") or {}).items():
        parts += every(each, f"{path}.{name}")
    if isinstance(part.get("items"), dict):
        parts += every(part["items"], f"{path}[]")
    if isinstance(part.get("additionalProperties"), dict):
        parts += every(part["additionalProperties"], f"{path}{{}}")
    return parts


def local(**changes: Any) -> LocalObject:
    given: dict[str, Any] = {
        "object_id": A,
        "node": "node-a.example",
        "store": "main",
        "lease": lease_name("main", "node-a.example"),
        "instance": "0f" * 16,
        "generation": 7,
        "bytes": 1 << 40,
        "scope": "airflow",
        "session": "run 1",
        "type": "arrow.table",
        "names": ("orders",),
        "persisted": True,
        "state": "InMemory",
        "available": CONDITION,
    }
    return LocalObject(**{**given, **changes})


def as_resource(published: LocalObject | GlobalObject) -> dict[str, Any]:
    condition = published.available if isinstance(published, LocalObject) else published.complete
    status: dict[str, Any] = {"conditions": [condition.to_dict(1)]} if condition else {}
    if isinstance(published, LocalObject):
        status["state"] = published.state
    return {
        "apiVersion": API_VERSION,
        "kind": type(published).__name__,
        "metadata": {"name": published.name},
        "spec": published.spec(),
        "status": status,
    }


@pytest.mark.parametrize("kind", ["LocalObject", "GlobalObject", "Store"])
def test_a_definition_has_what_users_and_controllers_need(kind: str) -> None:
    spec = DEFINITIONS[kind]["spec"]
    (version,) = spec["versions"]
    assert DEFINITIONS[kind]["metadata"]["name"] == f"{spec['names']['plural']}.entrepot.dev"
    assert f"{spec['group']}/{version['name']}" == API_VERSION
    assert version["subresources"] == {"status": {}}
    schema = version["schema"]["openAPIV3Schema"]
    paths = {path for path, _ in every(schema)}
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].partition("[")[0]
        assert path in paths or path.startswith(".metadata."), column
    for field in version.get("selectableFields", []):
        assert field["jsonPath"] in paths


@pytest.mark.parametrize("kind", ["LocalObject", "GlobalObject", "Store"])
def test_a_schema_is_structural_and_bounded(kind: str) -> None:
    schema = DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, part in every(schema):
        assert part.get("type") or part.get("x-kubernetes-int-or-string"), f"{path} has no type"
        if part.get("type") == "array":
            assert "maxItems" in part, f"{path} is unbounded"
            assert part.get("x-kubernetes-list-type"), f"{path} does not say how it is merged"
        if part.get("type") == "string":
            bounded = "maxLength" in part or "enum" in part or "format" in part
            assert bounded, f"{path} is unbounded, and CEL costs are counted by bounds"
        if part.get("type") == "object" and "additionalProperties" in part:
            assert "maxProperties" in part, f"{path} is unbounded"
        for required in part.get("required", []):
            assert required in part["properties"], f"{path} requires {required}, which it does not have"
        for rule in part.get("x-kubernetes-validations", []):
            assert rule["message"], f"a rule of {path} says nothing to people"


def test_what_the_classes_write_fits_the_schemas() -> None:
    member = local(member_of=(B, 3), names=(), persisted=False, members=None)
    collection = local(members=12, type="")
    for published in (local(), member, collection, local(names=tuple(f"n{i}" for i in range(MAX_NAMES)), state="Lost")):
        jsonschema.validate(as_resource(published), schema_of("LocalObject"))
        assert LocalObject.parse(as_resource(published)) == published
    whole = GlobalObject(
        A, 2, 100, "s", "", "numpy.ndarray", ("c",), (A, B), Condition("Complete", True, "AllMembers", "")
    )
    for shared in (whole, GlobalObject(A, MAX_MEMBERS + 1, 100, "s", "")):
        jsonschema.validate(as_resource(shared), schema_of("GlobalObject"))
        assert GlobalObject.parse(as_resource(shared)) == shared


def test_the_bounds_of_classes_and_schemas_are_the_same() -> None:
    spec = DEFINITIONS["GlobalObject"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["members"]["maxItems"] == MAX_MEMBERS
    assert spec["properties"]["names"]["maxItems"] == MAX_NAMES
    over = GlobalObject(A, MAX_MEMBERS + 1, 1, "s", "", members=tuple([A] * (MAX_MEMBERS + 1)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(as_resource(over), schema_of("GlobalObject"))


@pytest.mark.parametrize(
    "change",
    [{"node": "Not a node"}, {"bytes": -1}, {"instance": "12"}, {"scope": ""}, {"names": tuple("abcdefghi")}],
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(as_resource(local(**change)), schema_of("LocalObject"))


def test_names_in_the_api_are_short_and_tell_nodes_and_stores_apart() -> None:
    long = "n" * 253
    names = {local(node=node, store=store).name for node in ("a", "b", long) for store in ("main", "other")}
    assert len(names) == 6
    assert all(len(name) <= 63 and name.startswith(str(A)) for name in names)
    assert len(lease_name("s" * 63, long)) <= 63


def test_the_subcommand_prints_what_kubectl_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0
    assert capsys.readouterr().out == crds.text()
    assert set(DEFINITIONS) == {"DirectoryShard", "LocalObject", "GlobalObject", "Store"}
