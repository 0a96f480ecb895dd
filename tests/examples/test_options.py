"""Command-line options of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.flights import airflow_host, demo
from examples.flights.runs import Asked
from examples.flights.transports import HOSTS, TRANSPORTS, chosen


def test_every_host_has_entrepot_and_another() -> None:
    for host in HOSTS:
        names = [transport.name for transport in TRANSPORTS if transport.host == host]
        assert names[0] == "entrepot"
        assert len(names) == len(set(names)) >= 2


def test_choice() -> None:
    assert chosen(None, None) == list(TRANSPORTS)
    assert [one.name for one in chosen(["kedro"], ["memory", "entrepot"])] == ["entrepot", "memory"]
    with pytest.raises(ValueError, match="no host 'prefect'; there are airflow, dagster, kedro"):
        chosen(["prefect"], None)
    with pytest.raises(ValueError, match="no transport 'carrier-pigeon'"):
        chosen(None, ["carrier-pigeon"])
    with pytest.raises(ValueError, match="none of the hosts airflow has a transport memory"):
        chosen(["airflow"], ["memory"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scale", "0"], "--scale is 1 or more"),
        (["--rows", "-5"], "--rows is 1 or more"),
        (["--hosts", "cron"], "no host 'cron'"),
        (["--transports", "fax"], "no transport 'fax'"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_runs_do_not_see_the_shells_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__XCOM_BACKEND", "some.Other")
    monkeypatch.setenv("ENTREPOT_COPY", "always")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    asked = Asked(1, None, tmp_path, "unix:///some/socket", 60, print)
    variables = asked.environment()
    assert "AIRFLOW__CORE__XCOM_BACKEND" not in variables
    assert "ENTREPOT_COPY" not in variables
    assert variables["ENTREPOT_ADDRESS"] == "unix:///some/socket"
    assert variables["HTTPS_PROXY"] == "http://proxy"


def test_airflow_gets_a_home_and_ports_of_its_own(tmp_path: Path) -> None:
    asked = Asked(1, None, tmp_path, None, 60, print)
    mine = chosen(["airflow"], None)
    variables = airflow_host.environment(asked, mine, tmp_path / "airflow", 12345)
    assert variables["AIRFLOW_HOME"] == str(tmp_path / "airflow")
    assert variables["AIRFLOW__API__PORT"] == "12345"
    assert variables["FLIGHTS_DAGS"] == "flights_entrepot,flights_objectstorage"
    assert "ENTREPOT_ADDRESS" not in variables
