"""The component, and dagster.yaml of the examples."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    Component,
    DagsterInstance,
    Definitions,
    QueuedRunCoordinator,
    asset,
    materialize,
)
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager, EntrepotResource, TieredIOManager
from entrepot_dagster.components import EntrepotComponent

EXAMPLES = Path(__file__).parents[2] / "examples/dagster"


def definitions(attributes: dict[str, Any]) -> Definitions:
    """What a defs.yaml with these attributes defines."""
    component = EntrepotComponent.from_attributes_dict(attributes=attributes)
    no_context: Any = None  # it asks for nothing of a project's; test_project.py has one
    return component.build_defs(no_context)


def test_dg_finds_it() -> None:
    (entry_point,) = [
        entry_point
        for entry_point in importlib.metadata.entry_points(group="dagster_dg_cli.registry_modules")
        if entry_point.value.startswith("entrepot")
    ]
    module = entry_point.load()
    components = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Component)]
    assert components == [EntrepotComponent]


def test_defaults() -> None:
    defined = definitions({})
    assert set(defined.resources or {}) == {"io_manager", "entrepot"}
    assert not defined.sensors


def test_words_that_yaml_reads_as_something_else() -> None:
    """``off`` is a boolean in YAML, and 3600 a number."""
    resources = definitions({"reserve": False, "policy": False, "session_ttl": 3600}).resources or {}
    manager, resource = resources["io_manager"], resources["entrepot"]
    assert isinstance(manager, EntrepotIOManager)
    assert isinstance(resource, EntrepotResource)
    assert (manager.reserve, manager.policy, manager.session_ttl_seconds) == ("off", "off", 3600)
    assert resource.session_ttl == "3600"
    with pytest.raises(InvalidArgument, match="reserve must be off, measured or a size"):
        definitions({"reserve": True})


def test_every_setting_reaches_its_resource(tmp_path: Path) -> None:
    settings = {
        "address": "unix:///x.sock",
        "scope": "sales",
        "copy_mode": "on_write",
        "object_strings": "arrow",
        "allocate": True,
        "reserve": "1GiB",
        "reserve_timeout": "5min",
        "policy": "off",
        "preview_rows": 0,
    }
    attributes = {
        **settings,
        "session_ttl": "2h",
        "io_manager_key": "store",
        "resource_key": "objects",
        "durable": {"base_dir": str(tmp_path), "background": True},
        "failure_sensor": True,
    }
    assert set(EntrepotComponent.model_fields) == set(attributes)
    defined = definitions(attributes)
    resources: dict[str, Any] = dict(defined.resources or {})
    manager, resource = resources["store"], resources["objects"]
    assert isinstance(manager, TieredIOManager)
    assert isinstance(resource, EntrepotResource)
    store: Any = manager.store
    assert {name: getattr(store, name) for name in settings} == settings
    assert (store.session_ttl_seconds, resource.session_ttl, resource.scope) == ("2h", "2h", "sales")
    assert manager.in_background
    assert [sensor.name for sensor in defined.sensors or ()] == ["entrepot_store_failures"]
    assert set(definitions({"resource_key": None}).resources or {}) == {"io_manager"}


def test_invalid_settings_are_named() -> None:
    with pytest.raises(InvalidArgument, match="copy must be one of"):
        definitions({"copy_mode": "sometimes"})
    with pytest.raises(Exception, match="preview_rows"):
        definitions({"preview_rows": "many"})


@asset
def number() -> int:
    return 7


@pytest.mark.usefixtures("own_store")
def test_assets_use_it(instance: DagsterInstance) -> None:
    resources = dict(definitions({}).resources or {})
    assert isinstance(resources["io_manager"], EntrepotIOManager)
    assert materialize([number], instance=instance, resources={"io_manager": resources["io_manager"]}).success
    event = instance.get_latest_materialization_event(AssetKey("number"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["entrepot/type"].value == "int"


def test_dagster_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLES / "dagster.yaml", tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with DagsterInstance.get() as instance:
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)  # what the policy's sensors need
        assert instance.run_monitoring_enabled
        assert instance.managed_python_loggers == ["dagster.entrepot"]
        assert "max_concurrent_runs: 4" in instance.info_str()  # what `dagster instance info` prints
