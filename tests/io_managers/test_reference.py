"""References: read back exactly as stored; damaged ones are refused with the field and its value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from entrepot.errors import InvalidReference, VersionMismatch
from entrepot.ids import ObjectID
from entrepot_io.reference import Reference, is_reference

SCOPE, SESSION, KEY = "airflow-prod-1a2b", "airflow/etl/run 1", "etl/load/return_value"


def make(**changes: Any) -> Reference:
    fields: dict[str, Any] = {
        "scope": SCOPE,
        "session": SESSION,
        "id": ObjectID.derive(SCOPE, SESSION, KEY),
        "generation": 7,
        "instance": "0123456789abcdef" * 2,
        "host": "node-a",
        "type": "pandas.DataFrame",
        "nbytes": 1 << 30,
        "shape": (1000, 3),
        "key": KEY,
    }
    return Reference(**(fields | changes))


@pytest.mark.parametrize("reference", [make(), make(shape=None), make(shape=()), make(id=ObjectID.random(), key=None)])
def test_survives_json(reference: Reference) -> None:
    assert Reference.parse(json.loads(json.dumps(reference.to_dict()))) == reference


def test_unknown_fields_are_ignored() -> None:
    assert Reference.parse(make().to_dict() | {"checkpoint": "s3://bucket/x"}) == make()


def test_text_is_for_people() -> None:
    text = str(make())
    assert "pandas.DataFrame 1000x3, 1.0 GiB" in text
    assert KEY in text
    assert len(text) < 300


Change = Callable[[dict[str, Any]], None]


def _set(field: str, value: Any) -> Change:
    return lambda data: data.__setitem__(field, value)


def _drop(field: str) -> Change:
    return lambda data: data.__delitem__(field)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop("entrepot"), "no field 'entrepot'"),
        (_set("entrepot", 0), "'entrepot' is 0"),
        (_set("entrepot", "1"), "'entrepot' is '1'"),
        (_set("entrepot", True), "'entrepot' is True"),
        (_drop("id"), "no field 'id'"),
        (_set("id", "abc"), "'id' is 'abc'"),
        (_set("id", "g" * 40), "'id' is 'ggg"),
        (_set("id", 12), "'id' is 12"),
        (_drop("generation"), "no field 'generation'"),
        (_set("generation", -1), "'generation' is -1"),
        (_set("generation", 1.0), "'generation' is 1.0"),
        (_set("generation", 2**64), "'generation' is 184467"),
        (_set("instance", ""), "'instance' is ''"),
        (_set("instance", "Z" * 32), "'instance' is 'ZZZ"),
        (_set("host", None), "'host' is None"),
        (_set("scope", ""), "'scope' is ''"),
        (_set("scope", 3), "'scope' is 3"),
        (_drop("session"), "no field 'session'"),
        (_set("type", []), "'type' is []"),
        (_set("nbytes", "many"), "'nbytes' is 'many'"),
        (_set("shape", [1, -2]), "'shape' is [1, -2]"),
        (_set("shape", "1000x3"), "'shape' is '1000x3'"),
        (_set("key", 5), "'key' is 5"),
    ],
)
def test_damage_is_named(change: Change, message: str) -> None:
    data = make().to_dict()
    change(data)
    with pytest.raises(InvalidReference, match="rerun the task that wrote it") as caught:
        Reference.parse(data)
    assert message in str(caught.value)
    assert caught.value.code == "invalid_reference"


@pytest.mark.parametrize("field", ["id", "scope", "session", "key"])
def test_damage_that_keeps_the_form_is_found(field: str) -> None:
    """ID, scope, session and key have to match each other, so that a flipped digit never leads to another object."""
    data = make().to_dict()
    data[field] = str(ObjectID.derive("other", "other", "other")) if field == "id" else data[field] + "x"
    with pytest.raises(InvalidReference, match="is damaged"):
        Reference.parse(data)


@pytest.mark.parametrize("data", [None, 3, "text", [1, 2], b"bytes"])
def test_other_values_are_refused(data: object) -> None:
    with pytest.raises(InvalidReference, match="a reference must be a JSON object"):
        Reference.parse(data)


def test_long_values_are_cut_in_the_message() -> None:
    with pytest.raises(InvalidReference) as caught:
        Reference.parse(make().to_dict() | {"host": ["x" * 100_000]})
    assert len(str(caught.value)) < 300


def test_newer_version_is_told_apart_from_damage() -> None:
    with pytest.raises(VersionMismatch, match="format version 2, but this installation reads up to 1"):
        Reference.parse({"entrepot": 2})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (make().to_dict(), True),
        ({"entrepot": "no"}, True),
        ({key: value for key, value in make().to_dict().items() if key != "entrepot"}, True),
        ({"id": 1, "session": 2}, False),
        ({}, False),
        (None, False),
        ("entrepot", False),
        (["entrepot"], False),
    ],
)
def test_what_is_meant_as_a_reference(data: object, expected: bool) -> None:
    assert is_reference(data) is expected
