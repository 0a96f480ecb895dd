"""The rules of alerts are about metrics that exist, fire when they should, and each has a section of the page."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import entrepot
import pytest
import yaml
from entrepot.cli import main
from entrepot_metrics.store_collector import StoreCollector

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations" / "alerts.md"
TEXT = files("entrepot_metrics").joinpath("alerts.yml").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = yaml.safe_load(TEXT)["groups"][0]["rules"]
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool: apt-get install prometheus")


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--alerts"]) == 0
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_a_store_has(rule: dict[str, Any], daemon: Any) -> None:
    with entrepot.connect(daemon.address) as store:
        status = store.status()
    served = {sample.name for family in StoreCollector(lambda: status).collect() for sample in family.samples}
    named = set(re.findall(r"\bentrepot_\w+", rule["expr"]))
    assert named or rule["alert"] == "EntrepotMetricsAbsent"
    assert named <= served


def test_each_alert_has_a_section_with_its_severity() -> None:
    sections = dict(re.findall(r"^## (\w+)\n\n(\w+)\.", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    words = {"critical": "Critical", "warning": "Warning", "info": "Information"}
    assert sections == {rule["alert"]: words[rule["labels"]["severity"]] for rule in RULES}


def _run(folder: Path, series: dict[str, str], minute: int, alert: str, firing: bool) -> None:
    """Let promtool evaluate the rules on series, a value each minute, and compare what fires."""
    labels = 'instance="host:9817", job="entrepot"'
    severity = next(rule["labels"]["severity"] for rule in RULES if rule["alert"] == alert)
    state = f'alertname="{alert}", alertstate="firing", severity="{severity}"'
    test = {
        "rule_files": [str(folder / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"{name}{{{labels}}}", "values": values} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": f"count(ALERTS{{{state}}})",
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if firing else [],
                    }
                ],
            }
        ],
    }
    (folder / "alerts.yml").write_text(TEXT, encoding="utf-8")
    (folder / "test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(folder / "test.yml")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


FULL = {"entrepot_capacity_bytes": "100x600"}
CASES: list[tuple[str, int, dict[str, str], dict[str, str]]] = [
    ("EntrepotStoreDown", 5, {"entrepot_up": "0x10"}, {"entrepot_up": "1 1 1 1 1 0"}),
    ("EntrepotMetricsAbsent", 8, {"up": "0x10"}, {"up": "1x10"}),
    (
        "EntrepotPinnedNearlyFull",
        8,
        FULL | {"entrepot_pinned_bytes": "91x20"},
        FULL | {"entrepot_pinned_bytes": "90x20"},
    ),
    (
        "EntrepotRequestsWaiting",
        8,
        FULL | {"entrepot_used_bytes": "96x20", "entrepot_waiting_requests": "3x20"},
        FULL | {"entrepot_used_bytes": "50x20", "entrepot_waiting_requests": "3x20"},
    ),
    (
        "EntrepotSpillNearlyFull",
        15,
        {"entrepot_spill_disk_bytes": "95x20", "entrepot_spill_quota_bytes": "100x20"},
        {"entrepot_spill_disk_bytes": "0x20", "entrepot_spill_quota_bytes": "0x20"},
    ),
    (
        "EntrepotSpillWritesFail",
        15,
        {"entrepot_spill_failed_writes_total": "0x12 1x5"},
        {"entrepot_spill_failed_writes_total": "5x20"},
    ),
    (
        "EntrepotSpillReadsFail",
        15,
        {"entrepot_spill_failed_reads_total": "0x12 1x5"},
        {"entrepot_spill_failed_reads_total": "5x20"},
    ),
    (
        "EntrepotThrashing",
        50,
        FULL | {"entrepot_loaded_bytes_total": "0+30x60", "entrepot_evicted_bytes_total": "0+30x60"},
        FULL | {"entrepot_loaded_bytes_total": "0+30x60", "entrepot_evicted_bytes_total": "0+5x60"},
    ),
    (
        "EntrepotDaemonRestarts",
        58,
        {"entrepot_daemon_restarts_total": "0+1x5 5x60"},
        {"entrepot_daemon_restarts_total": "0 1 1x60"},
    ),
    ("EntrepotDeletedStillRead", 365, {"entrepot_deleted_in_use": "2x400"}, {"entrepot_deleted_in_use": "2x300 0x100"}),
]


@needs_promtool
@pytest.mark.parametrize(("alert", "minute", "fires", "does_not"), CASES, ids=[case[0] for case in CASES])
def test_an_alert_fires_when_it_should_and_not_before(
    alert: str, minute: int, fires: dict[str, str], does_not: dict[str, str], tmp_path: Path
) -> None:
    _run(tmp_path, fires, minute, alert, True)
    _run(tmp_path, does_not, minute, alert, False)


def test_each_alert_has_a_case() -> None:
    assert [case[0] for case in CASES] == [rule["alert"] for rule in RULES]
