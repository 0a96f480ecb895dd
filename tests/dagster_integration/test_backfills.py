"""Backfills by Dagster's daemon: in a single run, in runs of several partitions, and in a run for each partition."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backfill_assets
import entrepot
import pytest
from dagster import DagsterInstance, RunsFilter, materialize
from dagster._core.execution.backfill import BulkActionStatus
from dagster_daemon import BackfillDaemon, backfill_daemon, request_backfill
from entrepot_dagster import EntrepotIOManager
from entrepot_io.connections import close_all
from suspension import state_of

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(400)]

FILE = Path(backfill_assets.__file__)
STOPPED_SECONDS = 10.0
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


# --- processes that are killed, or stand still, in the middle of a backfill


@pytest.fixture
def held(tmp_path: Path, daemon: Any, wait_until: Callable[..., None]) -> Iterator[HeldBackfill]:
    """A backfill whose first run is in the middle of its first step, until it is told to go on."""
    (tmp_path / "hold").touch()
    with (
        backfill_daemon(tmp_path, FILE, daemon.address) as dagster,
        DagsterInstance.from_config(str(tmp_path)) as instance,
    ):
        backfill_id = request_backfill(instance, backfill_assets.defs, ["orders", "revenue", "in_pairs"], DAYS)
        wait_until((tmp_path / "held").exists, "the first step", 200)
        yield HeldBackfill(dagster, instance, backfill_id, int((tmp_path / "held").read_text()))


@dataclass
class HeldBackfill:
    """A backfill that stands in its first step, in the process ``run_pid``."""

    dagster: BackfillDaemon
    instance: DagsterInstance
    backfill_id: str
    run_pid: int

    def go_on(self) -> None:
        (self.dagster.home / "hold").unlink()

    def status(self, backfill_id: str | None = None) -> BulkActionStatus:
        """The backfill's end; of another one if that is given."""
        status = self.dagster.wait_for(backfill_id or self.backfill_id, self.instance).status
        assert isinstance(status, BulkActionStatus)
        return status

    def check(self, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
        """Each partition has its value."""
        values = [load(self.instance, monkeypatch, address, "revenue", partition_key=day) for day in DAYS]
        assert values == [1000.0, 2000.0, 3000.0]
        pairs = [load(self.instance, monkeypatch, address, "in_pairs", partition_key=day) for day in DAYS]
        assert pairs == [1000, 1000, 1000]


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["dagster's daemon", "the store's daemon", "the store's keeper"])
def test_a_backfill_goes_on_without(
    victim: str, held: HeldBackfill, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while a run is in its step: the run goes on, and so does the backfill once Dagster's daemon is back."""
    if victim == "dagster's daemon":
        held.dagster.kill()
        held.go_on()
        held.dagster.start()
    else:
        with entrepot.connect(daemon.address) as store:
            status = store.status()
        os.kill(status["pid" if victim == "the store's daemon" else "keeper_pid"], signal.SIGKILL)
        held.go_on()
    assert held.status() is BulkActionStatus.COMPLETED_SUCCESS
    held.check(monkeypatch, daemon.address)


@pytest.mark.exhaustive
def test_a_killed_run_is_left_to_another_backfill(
    held: HeldBackfill, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's monitoring notices it, and the backfill fails; one of what has failed completes it."""
    os.kill(held.run_pid, signal.SIGKILL)
    held.go_on()  # the runs of the next one
    assert held.status() is BulkActionStatus.COMPLETED_FAILED
    again = request_backfill(held.instance, backfill_assets.defs, ["orders", "revenue", "in_pairs"], DAYS)
    assert held.status(again) is BulkActionStatus.COMPLETED_SUCCESS
    held.check(monkeypatch, daemon.address)


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["a run", "dagster's daemon", "the store's daemon"])
def test_a_backfill_waits_for(
    victim: str, held: HeldBackfill, daemon: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    """Stopped for a while in the middle of a run, which is shorter than what anyone waits."""
    with entrepot.connect(daemon.address) as store:
        store_pid = store.status()["pid"]
    pid = {"a run": held.run_pid, "dagster's daemon": held.dagster.pid, "the store's daemon": store_pid}[victim]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) == "T", f"the stop of {victim}")
        held.go_on()
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() > stopped + STOPPED_SECONDS, "the end of the stop")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert held.status() is BulkActionStatus.COMPLETED_SUCCESS
    held.check(monkeypatch, daemon.address)
