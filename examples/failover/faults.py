"""Injects faults: SIGKILL to a task, to the daemon, or to keeper and daemon, while the model is trained.

A :class:`StoreProcess` takes the role of whatever starts daemons on a real machine (systemd, a container's restart
policy): a killed store is restarted at the same address, empty. It does so only when keeper and daemon are both killed;
a daemon alone is restarted by its keeper.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import entrepot

from examples.failover.tasks import JournalLine, read_journal
from examples.flights.processes import Child, DemoError
from examples.flights.runs import MIB, ROOT

FAULTS = ("none", "task", "daemon", "store")
FAULT_LABELS = {
    "none": "undisturbed",
    "task": "kill -9 of the task",
    "daemon": "kill -9 of the daemon",
    "store": "kill -9 of keeper and daemon",
}
VICTIM_TASK = "train"  # it has read its input by then, and later tasks read more
WATCHDOG_SECONDS = 60.0


class StoreProcess:
    """An ``entrepotd`` in the foreground, restarted after both of its processes were killed.

    Args:
        folder: directory of its log.
        address: ``unix://`` and a path.
        size_mib: capacity.
        environment: its variables.
    """

    def __init__(self, folder: Path, address: str, size_mib: int, environment: dict[str, str]) -> None:
        self.address = address
        self._socket = Path(address.removeprefix("unix://"))
        self._folder = folder
        self._command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address]
        # Nothing on disk: only checkpoints survive the death of both processes.
        self._command += ["--size", str(size_mib * MIB), "--spill-path", "none"]
        self._environment = environment
        self._child: Child | None = None

    def start(self) -> None:
        """Start it and wait until it responds.

        Raises:
            DemoError: it does not start.
        """
        log = self._folder / "entrepotd.log"
        self._child = Child("entrepotd", self._command, log=log, environment=self._environment, folder=ROOT)
        self._child.wait_for(self._is_reachable, f"a store at {self.address}", WATCHDOG_SECONDS, interval=0.02)

    def _is_reachable(self) -> bool:
        try:
            with entrepot.connect(self.address, scope="failover-demo"):
                return True
        except entrepot.StoreUnavailable:
            return False

    def stop(self) -> None:
        """Stop it."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def pids(self) -> tuple[int, int]:
        """Process IDs of daemon and keeper."""
        with entrepot.connect(self.address, scope="failover-demo") as store:
            status = store.status()
        return int(status["pid"]), int(status["keeper_pid"])

    def kill_daemon(self) -> None:
        """SIGKILL the daemon only; its keeper starts a new one."""
        os.kill(self.pids()[0], signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL keeper and daemon, and start a new store."""
        self.kill_for_good()
        self.start()

    def kill_for_good(self) -> None:
        """SIGKILL keeper and daemon."""
        daemon, keeper = self.pids()
        os.kill(daemon, signal.SIGSTOP)  # otherwise it might start another keeper just before its own end
        os.kill(keeper, signal.SIGKILL)
        os.kill(daemon, signal.SIGKILL)
        self.stop()


class VictimWatcher(threading.Thread):
    """Waits for the victim task to begin, then injects a fault.

    Args:
        inject: injects it, given the journal line with which the task began.
        journal: of the run.
        name: of the thread.

    Attributes:
        injected_at: when the fault was injected, in seconds since the epoch; 0: not yet.
        victim: the line with which the task began; ``None``: not yet.
        error: why it could not be injected.
    """

    def __init__(self, inject: Callable[[JournalLine], None], journal: Path, name: str = "fault") -> None:
        super().__init__(name=name, daemon=True)
        self.injected_at = 0.0
        self.victim: JournalLine | None = None
        self.error: BaseException | None = None
        self._journal = journal
        self._run_ended = threading.Event()
        self._inject = inject

    def run(self) -> None:
        while not self._run_ended.wait(0.005):
            begin_lines = [
                line for line in read_journal(self._journal) if (line.task, line.what) == (VICTIM_TASK, "begin")
            ]
            if not begin_lines:
                continue
            self.injected_at = time.time()
            self.victim = begin_lines[0]
            try:
                self._inject(begin_lines[0])
            except (OSError, DemoError, entrepot.EntrepotError) as error:
                self.error = error
            return

    def finish(self) -> None:
        """Call at the end of the run.

        Raises:
            DemoError: the fault was not injected, or injecting it failed.
        """
        self._run_ended.set()
        self.join(2 * WATCHDOG_SECONDS)
        if self.error is not None:
            raise DemoError(f"cannot inject the fault: {self.error}") from self.error
        if not self.injected_at:
            raise DemoError(f"the run ended before {VICTIM_TASK} began")


class FaultInjector(VictimWatcher):
    """Injects one of the faults into a run on one host.

    Args:
        fault: one of ``FAULTS``.
        journal: of the run.
        store: of the run.
    """

    def __init__(self, fault: str, journal: Path, store: StoreProcess) -> None:
        inject: dict[str, Callable[[JournalLine], None]] = {
            "none": lambda line: None,
            "task": lambda line: os.kill(line.pid, signal.SIGKILL),
            "daemon": lambda line: store.kill_daemon(),
            "store": lambda line: store.kill(),
        }
        super().__init__(inject[fault], journal, f"plug-{fault}")
