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
