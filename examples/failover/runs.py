"""Parameters and results of runs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrepot_policy.state.events import Event, log_file, read_events

from examples.failover.tasks import FOLDER_VARIABLE, TASK_NAMES, JournalLine
from examples.flights.runs import ROOT

RunJob = Callable[[str], dict[str, Any]]  # runs the job under a name and returns its report

SCOPE = "failover"
ORCHESTRATORS = ("airflow", "dagster", "kedro")


@dataclass(frozen=True)
class RunConfig:
    """Parameters shared by all runs.

    Attributes:
        rows: number of flights; ``None``: all.
        scale: years of them.
        work: directory for all temporary files.
        timeout: of one run, in seconds.
        print_progress: prints a line of progress.
    """

    rows: int | None
    scale: int
    work: Path
    timeout: float
    print_progress: Callable[[str], None]

    @property
    def address(self) -> str:
        """Address of the current run's store."""
        return f"unix://{self.work}/store.sock"

    @property
    def journal(self) -> Path:
        return self.work / "journal.jsonl"

    @property
    def hold(self) -> Path:
        """While this file exists, training waits; see :data:`examples.failover.tasks.HELD_TASKS`."""
        return self.work / "hold"

    def environment(self) -> dict[str, str]:
        """Environment of every process. The policy is one variable, the only one that users set for it."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "DAGSTER", "KEDRO", "ENTREPOT_", "FLIGHTS_", "FAILOVER_"))
        }
        path = [str(ROOT), variables.get("PYTHONPATH", "")]
        return variables | {
            "PYTHONPATH": os.pathsep.join(part for part in path if part),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)]),
            "PYTHONUNBUFFERED": "1",
            "DO_NOT_TRACK": "1",
            "ENTREPOT_ADDRESS": self.address,
            "ENTREPOT_SCOPE": SCOPE,
            "ENTREPOT_POLICY": str(ROOT / "examples/failover/policy.yaml"),
            "ENTREPOT_EVENTS": str(self.work / "events"),
            FOLDER_VARIABLE: str(self.work),
        }

    def events(self) -> list[Event]:
        """Everything the policy did in all runs so far."""
        return list(read_events(log_file(SCOPE, self.work / "events")))


@dataclass(frozen=True)
class Row:
    """One run, as a row of the table.

    Attributes:
        orchestrator, fault: which.
        seconds: duration of the run.
        until_fault: the part of it before the fault.
        scratch: duration of a rerun from scratch: the time until the fault plus an undisturbed run.
        reloaded: tasks whose output was reloaded from a checkpoint.
        rerun: tasks that began more than once, with how often.
        report: the job's answer.
    """

    orchestrator: str
    fault: str
    seconds: float
    until_fault: float
    scratch: float
    reloaded: tuple[str, ...]
    rerun: tuple[str, ...]
    report: dict[str, Any]


def rerun_tasks(lines: Sequence[JournalLine]) -> tuple[str, ...]:
    """The tasks that began more than once, in the job's order."""
    start_counts = Counter(line.task for line in lines if line.what == "begin")
    return tuple(
        name if start_counts[name] == 2 else f"{name} x{start_counts[name] - 1}"
        for name in TASK_NAMES
        if start_counts[name] > 1
    )


def reloaded_tasks(events: Sequence[Event]) -> tuple[str, ...]:
    """The tasks whose outputs were loaded from checkpoints, each once."""
    tasks = [event.task.rpartition(".")[2] for event in events if event.kind == "reloaded"]
    return tuple(dict.fromkeys(tasks))
