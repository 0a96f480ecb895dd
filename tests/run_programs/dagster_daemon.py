"""A Dagster daemon with an instance of its own, and backfills that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, Definitions
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

SECONDS = 240.0
SETTINGS = """
telemetry: {enabled: false}
run_queue: {max_concurrent_runs: 2}
run_monitoring: {enabled: true, start_timeout_seconds: 120, cancel_timeout_seconds: 20, poll_interval_seconds: 1}
"""
ENDED = (BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.COMPLETED_FAILED, BulkActionStatus.FAILED)


class BackfillDaemon:
    """``dagster-daemon run`` with the definitions of a file; it launches runs as processes of their own.

    Attributes:
        home: DAGSTER_HOME.
    """

    def __init__(self, home: Path, file: Path, address: str) -> None:
        self.home, self._file = home, file
        (home / "dagster.yaml").write_text(SETTINGS)
        with DagsterInstance.from_config(str(home)):
            pass  # makes the databases, which no two of the daemon's processes may do at once
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            "ENTREPOT_ADDRESS": address,
            "PYTHONPATH": str(file.parent),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log goes on from one start to the next."""
        command = [sys.executable, "-m", "dagster._daemon", "run", "-f", str(self._file)]
        with (self.home / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """ID of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the daemon alone, as for lack of memory: runs and code servers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def end(self) -> None:
        """End it, with all processes of its session."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    def wait_for(self, backfill_id: str, instance: DagsterInstance) -> PartitionBackfill:
        """Wait until a backfill has ended; the test fails, with the daemon's log, if it does not."""
        end = time.monotonic() + SECONDS
        while True:
            backfill = instance.get_backfill(backfill_id)
            if backfill is not None and backfill.status in ENDED:
                return backfill
            if time.monotonic() > end or self._process is None or self._process.poll() is not None:
                log = (self.home / "daemon.log").read_text(errors="replace")
                pytest.fail(f"the backfill did not end: {backfill}\n{log[-10_000:]}")
            time.sleep(0.2)


@contextmanager
def backfill_daemon(home: Path, file: Path, address: str) -> Iterator[BackfillDaemon]:
    """A running daemon, until the end of the block."""
    daemon = BackfillDaemon(home, file, address)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.end()


def request_backfill(
    instance: DagsterInstance, definitions: Definitions, assets: Sequence[str], partitions: Sequence[str]
) -> str:
    """Request what the button "Materialize" of Dagster's pages requests; return the backfill's ID."""
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id=uuid.uuid4().hex[:8],
        asset_graph=definitions.resolve_asset_graph(),
        partition_names=list(partitions),
        asset_selection=[AssetKey(name) for name in assets],
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=instance,
        all_partitions=False,
        title=None,
        description=None,
        run_config=None,
    )
    instance.add_backfill(backfill)
    return backfill.backfill_id
