"""Command-line options of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import demo, on_airflow
from examples.flights.runs import RunConfig
from examples.flights.transports import ORCHESTRATORS, TRANSPORTS, select_transports


def test_every_orchestrator_has_entrepot_and_another() -> None:
    for orchestrator in ORCHESTRATORS:
        names = [transport.name for transport in TRANSPORTS if transport.orchestrator == orchestrator]
        assert names[0] == "entrepot"
        assert len(names) == len(set(names)) >= 2


def test_choice() -> None:
    assert select_transports(None, None) == list(TRANSPORTS)
    assert [transport.name for transport in select_transports(["kedro"], ["memory", "entrepot"])] == [
        "entrepot",
        "memory",
    ]
    with pytest.raises(ValueError, match="unknown orchestrator 'prefect'; available: airflow, dagster, kedro"):
        select_transports(["prefect"], None)
    with pytest.raises(ValueError, match="unknown transport 'carrier-pigeon'"):
        select_transports(None, ["carrier-pigeon"])
    with pytest.raises(ValueError, match="none of the orchestrators airflow has a transport memory"):
        select_transports(["airflow"], ["memory"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "0"], "--scale must be at least 1, not 0"),
        (["--rows", "-5"], "--rows must be at least 1, not -5"),
        (["--orchestrators", "cron"], "unknown orchestrator 'cron'"),
        (["--transports", "fax"], "unknown transport 'fax'"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.parse(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--orchestrators", "--hosts"])
def test_orchestrators_are_chosen_by_either_name_of_the_option(option: str) -> None:
    assert demo.parse([option, "kedro"]).orchestrators == ["kedro"]


def test_runs_do_not_see_the_shells_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__XCOM_BACKEND", "some.Other")
    monkeypatch.setenv("ENTREPOT_COPY", "always")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    config = RunConfig(1, None, tmp_path, "unix:///some/socket", 60, print)
    variables = config.environment()
    assert "AIRFLOW__CORE__XCOM_BACKEND" not in variables
    assert "ENTREPOT_COPY" not in variables
    assert variables["ENTREPOT_ADDRESS"] == "unix:///some/socket"
    assert variables["HTTPS_PROXY"] == "http://proxy"


def test_airflow_gets_a_home_and_ports_of_its_own(tmp_path: Path) -> None:
    config = RunConfig(1, None, tmp_path, None, 60, print)
    transports = select_transports(["airflow"], None)
    variables = on_airflow.environment(config, transports, tmp_path / "airflow", 12345)
    assert variables["AIRFLOW_HOME"] == str(tmp_path / "airflow")
    assert variables["AIRFLOW__API__PORT"] == "12345"
    assert variables["FLIGHTS_DAGS"] == "flights_entrepot,flights_objectstorage"
    assert "ENTREPOT_ADDRESS" not in variables
