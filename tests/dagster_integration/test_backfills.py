"""Backfills by Dagster's daemon: in a single run, in runs of several partitions, and in a run for each partition."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import backfill_assets
from dagster import DagsterInstance, RunsFilter, materialize
from dagster._core.execution.backfill import BulkActionStatus
from dagster_daemon import BackfillDaemon, backfill_daemon, request_backfill
from entrepot_dagster import EntrepotIOManager
from entrepot_io.connections import close_all

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(400)]

FILE = Path(backfill_assets.__file__)
DAYS = backfill_assets.DAYS.get_partition_keys()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def running(home: Path, module_daemon: Any) -> Iterator[BackfillDaemon]:
    with backfill_daemon(home, FILE, module_daemon.address) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def backfilled(running: BackfillDaemon) -> Iterator[tuple[DagsterInstance, str]]:
    """The instance after a backfill of everything, and that backfill's ID."""
    with DagsterInstance.from_config(str(running.home)) as instance:
        assets = ["orders", "revenue", "in_pairs", "by_day"]
        backfill_id = request_backfill(instance, backfill_assets.defs, assets, DAYS)
        backfill = running.wait_for(backfill_id, instance)
        log = (running.home / "daemon.log").read_text(errors="replace")
        assert backfill.status is BulkActionStatus.COMPLETED_SUCCESS, f"{backfill.error}\n{log[-10_000:]}"
        yield instance, backfill_id


def partitions_by_run(instance: DagsterInstance, backfill_id: str, asset: str) -> list[list[str]]:
    """Partitions that each run of a backfill has materialized of an asset."""
    by_run: list[list[str]] = []
    for run in instance.get_runs(RunsFilter(tags={"dagster/backfill": backfill_id})):
        events = [entry.dagster_event for entry in instance.all_logs(run.run_id)]
        days = [
            str(event.partition)
            for event in events
            if event is not None
            and event.is_step_materialization
            and event.asset_key is not None
            and event.asset_key.path == [asset]
        ]
        if days:
            by_run.append(sorted(days))
    return sorted(by_run)


def load(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, address: str, asset: str, **options: Any) -> Any:
    """What the store has of an asset, in this process."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", address)
    try:
        return backfill_assets.defs.load_asset_value(asset, instance=instance, **options)
    finally:
        close_all()


def test_a_policy_says_which_partitions_a_run_covers(backfilled: tuple[DagsterInstance, str]) -> None:
    instance, backfill_id = backfilled
    assert partitions_by_run(instance, backfill_id, "orders") == [DAYS]
    assert partitions_by_run(instance, backfill_id, "revenue") == [DAYS]
    assert partitions_by_run(instance, backfill_id, "in_pairs") == [DAYS[:2], DAYS[2:]]
    assert partitions_by_run(instance, backfill_id, "by_day") == [[day] for day in DAYS]


def test_each_partition_is_a_value_of_its_own(
    backfilled: tuple[DagsterInstance, str], monkeypatch: pytest.MonkeyPatch, module_daemon: Any
) -> None:
    instance, _ = backfilled

    def partitions(asset: str) -> list[Any]:
        return [load(instance, monkeypatch, module_daemon.address, asset, partition_key=day) for day in DAYS]

    assert [frame["day"].unique().to_list() for frame in partitions("orders")] == [[day] for day in DAYS]
    assert partitions("revenue") == [1000.0, 2000.0, 3000.0]
    assert partitions("in_pairs") == [1000, 1000, 1000]
    assert partitions("by_day") == [[day, [day], 1000.0 * (number + 1)] for number, day in enumerate(DAYS)]


def test_what_has_no_partitions_reads_all_of_them(
    backfilled: tuple[DagsterInstance, str], monkeypatch: pytest.MonkeyPatch, module_daemon: Any
) -> None:
    instance, _ = backfilled
    monkeypatch.setenv("ENTREPOT_ADDRESS", module_daemon.address)
    everything = [backfill_assets.orders, backfill_assets.revenue, backfill_assets.in_pairs, backfill_assets.total]
    resources = {"io_manager": EntrepotIOManager()}
    result = materialize(everything, selection=["total"], instance=instance, resources=resources)
    close_all()
    assert result.output_for_node("total") == [3000, 6000.0, dict.fromkeys(DAYS, 1000)]
