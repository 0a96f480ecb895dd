"""The plugin in the oldest Airflow that it supports: nothing that came later may keep its listeners from loading.

Airflow catches the error of a plugin that cannot be imported, so its listeners would be missing without a word.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# What the oldest supported version, 3.2, does not have yet, of what this package imports.
LATER_MODULES = ("airflow.sdk.definitions.retry_policy",)

# Airflow's core and its task SDK each load the plugins, with a plugin manager of their own.
PROGRAM = """
import importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Missing())
sys.argv[0:2] = ["airflow", "scheduler"]

from airflow import plugins_manager
from airflow.listeners.listener import get_listener_manager
from airflow.sdk.listener import get_listener_manager as get_task_listener_manager

listeners = [
    {plugin.__name__ for plugin in manager.pm.get_plugins()}
    for manager in (get_listener_manager(), get_task_listener_manager())
]
errors = {name: text for name, text in plugins_manager.get_import_errors().items() if "entrepot" in name + text}
print(json.dumps({"errors": errors, "core": sorted(listeners[0]), "tasks": sorted(listeners[1])}))
"""


@pytest.fixture
def load_plugin(tmp_path: Path) -> Any:
    """``load_plugin(*modules)``: load the plugin where these modules do not exist; return listeners and errors."""

    def load(*missing_modules: str) -> dict[str, Any]:
        policy = tmp_path / "policy.yaml"
        policy.write_text("version: 1\n")
        environment = os.environ | {
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "ENTREPOT_POLICY": str(policy),
        }
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, "-", *missing_modules],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert process.returncode == 0, process.stderr[-5000:]
        loaded: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        return loaded

    return load


@pytest.mark.slow
def test_the_listeners_load_without_what_came_later(load_plugin: Any) -> None:
    loaded = load_plugin(*LATER_MODULES)
    assert loaded["errors"] == {}
    for process in ("core", "tasks"):
        assert {"entrepot_airflow.policy.listener", "entrepot_airflow.session_sweeper"} <= set(loaded[process])


@pytest.mark.slow
def test_a_listener_that_cannot_be_imported_is_noticed_here(load_plugin: Any) -> None:
    loaded = load_plugin("entrepot_airflow.policy.rerun_service")
    assert "rerun_service" in str(loaded["errors"])
    assert "entrepot_airflow.policy.listener" not in loaded["core"]
