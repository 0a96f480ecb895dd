"""What Airflow's own commands say about the provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_processes import run_in_airflow
from entrepot_airflow.get_provider_info import get_provider_info

CODE = """
import contextlib, io, json

def airflow(*arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        parsed = parser.parse_args(arguments)
        parsed.func(parsed)
    return output.getvalue()

from airflow.cli import cli_parser
parser = cli_parser.get_parser()
shown = ("--include-descriptions", "--include-examples", "--defaults")
options = airflow("config", "list", "--section", "entrepot", *shown)
kept = airflow("config", "get-value", "entrepot", "keep_runs")
providers = json.loads(airflow("providers", "list", "--output", "json"))
types = json.loads(airflow("providers", "hooks", "--output", "json"))
notifications = airflow("providers", "notifications", "--output", "json")
plugins = json.loads(airflow("plugins", "--output", "json"))
print(json.dumps({"options": options, "kept": kept, "notifications": notifications,
    "provider": [each for each in providers if each["package_name"] == "entrepot"],
    "hook": [each for each in types if each["connection_type"] == "entrepot"],
    "plugin": [each for each in plugins if each["name"] == "entrepot"]}))
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_airflows_commands_show_the_provider(daemon: Any, tmp_path: Path) -> None:
    output = run_in_airflow(CODE, daemon, tmp_path, AIRFLOW__ENTREPOT__KEEP_RUNS="7")
    shown = json.loads(output.splitlines()[-1])
    assert "[entrepot]" in shown["options"]
    for option in get_provider_info()["config"]["entrepot"]["options"]:
        assert option in shown["options"], option
    assert "How long the values of a run are kept after it has succeeded" in shown["options"]
    assert shown["kept"].strip() == "7"
    assert len(shown["provider"]) == 1
    assert "EntrepotHook" in str(shown["hook"])
    assert "entrepot_airflow.callbacks.FailoverNotifier" in shown["notifications"]
    assert len(shown["plugin"]) == 1
    assert "ValuesLink" in str(shown["plugin"])
    assert "PageApp" in str(shown["plugin"])
