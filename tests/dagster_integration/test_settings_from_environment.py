"""Every field of the IO managers and the resource can be an environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterError, EnvVar, FilesystemIOManager, build_resources
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager, EntrepotResource, TieredIOManager
from pydantic import ValidationError

VARIABLE = "OF_THE_TEST"


def opened(resource: Any) -> Any:
    """The resource as a run has it: its environment variables are read."""
    with build_resources({"it": resource}) as resources:
        return resources.it


def refusal(resource: Any) -> str:
    """Why a run with this resource fails: the error in Dagster's."""
    with pytest.raises(DagsterError) as caught:
        opened(resource)
    assert isinstance(caught.value.__cause__, InvalidArgument)
    return caught.value.__cause__.message


@pytest.mark.parametrize(
    ("field", "text", "setting", "value"),
    [
        ("address", "unix:///somewhere.sock", "address", "unix:///somewhere.sock"),
        ("scope", "mine", "scope", "mine"),
        ("copy", "on_write", "copy", "on_write"),
        ("object_strings", "arrow", "object_strings", "arrow"),
        ("session_ttl_seconds", "2h", "session_ttl", 7200.0),
        ("allocate", "true", "allocate", True),
        ("allocate", "no", "allocate", False),
        ("reserve", "2GiB", "reserve", 1 << 31),
        ("reserve_timeout", "5min", "reserve_timeout", 300.0),
    ],
)
def test_settings_of_the_io_manager(
    field: str, text: str, setting: str, value: Any, monkeypatch: pytest.MonkeyPatch, own_store: None
) -> None:
    manager = EntrepotIOManager(**{field: EnvVar(VARIABLE)})  # the variable is read when a run begins, not here
    monkeypatch.setenv(VARIABLE, text)
    if (field, text) == ("allocate", "true"):
        manager = EntrepotIOManager(address=EnvVar("ENTREPOT_ADDRESS"), allocate=EnvVar(VARIABLE))
    assert getattr(opened(manager)._settings(), setting) == value


def test_numbers_and_the_policy_of_the_io_manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    assert opened(EntrepotIOManager(preview_rows=EnvVar.int(VARIABLE))).preview_rows == 3
    assert opened(EntrepotIOManager(session_ttl_seconds=EnvVar.int(VARIABLE)))._settings().session_ttl == 3.0
    monkeypatch.setenv(VARIABLE, str(tmp_path / "policy.yaml"))
    assert "policy.yaml" in refusal(EntrepotIOManager(policy=EnvVar(VARIABLE)))


def test_every_field_of_the_io_manager_is_tried_above() -> None:
    tried = {"address", "scope", "copy_mode", "object_strings", "session_ttl_seconds", "allocate", "reserve"}
    assert set(EntrepotIOManager.model_fields) == tried | {"reserve_timeout", "preview_rows", "policy"}
    assert set(EntrepotResource.model_fields) == {"address", "scope", "session", "session_ttl"}
    assert set(TieredIOManager.model_fields) == {"store", "durable", "background"}


@pytest.mark.parametrize(
    ("field", "text"),
    [("address", "unix:///somewhere.sock"), ("scope", "mine"), ("session", "tables"), ("session_ttl", "12h")],
)
def test_settings_of_the_resource(field: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {field: EnvVar(VARIABLE)}
    resource = EntrepotResource(**settings)
    monkeypatch.setenv(VARIABLE, text)
    assert getattr(opened(resource), field) == text


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("0", False)])
def test_settings_of_both_tiers(
    text: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_store: None
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setenv("OF_THE_STORE", "mine")
    monkeypatch.setenv("OF_THE_FILES", str(tmp_path))
    manager = opened(
        TieredIOManager(
            store=EntrepotIOManager(scope=EnvVar("OF_THE_STORE")),
            durable=FilesystemIOManager(base_dir=EnvVar("OF_THE_FILES")),
            background=EnvVar(VARIABLE),
        )
    )
    assert manager.in_background is expected
    assert manager.store.scope == "mine"


@pytest.mark.parametrize("field", ["session_ttl_seconds", "allocate"])
def test_a_variable_that_is_not_set_is_named(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    reason = refusal(EntrepotIOManager(**{field: EnvVar(VARIABLE)}))
    assert reason == f"{field} is read from the environment variable {VARIABLE}, which is not set"


def test_values_are_checked_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="allocate must be true or false, not 'perhaps'"):
        EntrepotIOManager(allocate="perhaps")
    with pytest.raises(InvalidArgument, match="object_strings must be 'object' or 'arrow', not 'polars'"):
        EntrepotIOManager(object_strings="polars")
    with pytest.raises(InvalidArgument, match="background must be true or false, not 'perhaps'"):
        TieredIOManager(store=EntrepotIOManager(), durable=FilesystemIOManager(), background="perhaps")
    with pytest.raises(ValidationError, match="preview_rows"):
        EntrepotIOManager(preview_rows="many")
    monkeypatch.setenv(VARIABLE, "perhaps")
    assert "allocate must be true or false, not 'perhaps'" in refusal(EntrepotIOManager(allocate=EnvVar(VARIABLE)))
    monkeypatch.setenv(VARIABLE, "")
    assert "scope must not be empty" in refusal(EntrepotIOManager(scope=EnvVar(VARIABLE)))


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"address": "foo"}, "an address must have the form unix:///absolute/path/to/socket, but got 'foo'"),
        ({"address": ""}, "an address must have the form unix:///absolute/path/to/socket, but got ''"),
        ({"address": "unix://relative"}, "must be absolute"),
        ({"address": "unix:///" + "a" * 200}, "a socket's path can have at most 107 bytes"),
        ({"scope": "x" * 300}, "a scope must be text of at most 160 bytes"),
        ({"session_ttl_seconds": 1e300}, "a session's time to live must be at most 4294967296 seconds, not 1e+300"),
        ({"copy_mode": "always"}, "EntrepotIOManager has no setting 'copy_mode': its name is 'copy'"),
    ],
)
def test_what_a_store_would_refuse_is_refused_where_it_is_defined(setting: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        EntrepotIOManager(**setting)
    assert reason in caught.value.message


def test_a_wrong_address_of_the_environment_is_refused_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "garbage")
    for resource in (EntrepotIOManager(address=EnvVar(VARIABLE)), EntrepotResource(address=EnvVar(VARIABLE))):
        assert "an address must have the form unix:///" in refusal(resource)
    monkeypatch.setenv("ENTREPOT_ADDRESS", "garbage")
    for resource in (EntrepotIOManager(), EntrepotResource()):
        assert refusal(resource).endswith("but got 'garbage' (set by ENTREPOT_ADDRESS)")
    with pytest.raises(InvalidArgument, match="a session must be text of at most 240 bytes"):
        EntrepotResource(session="s" * 300)
