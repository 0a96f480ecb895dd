"""What a run is asked, and what it comes to."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrepot_io.policy.events import Event, log_file, read_events

from examples.failover.tasks import FOLDER, NAMES, Line
from examples.flights.runs import ROOT

Run = Callable[[str], dict[str, Any]]  # runs the job under a name and gives back its report

SCOPE = "failover"
HOSTS = ("airflow", "dagster", "kedro")


@dataclass(frozen=True)
class Asked:
    """What all runs share.

    Attributes:
        rows: flights; ``None``: all.
        scale: years of them.
        work: folder for everything temporary.
        timeout: seconds that one run may take.
        tell: prints a line of progress.
    """

    rows: int | None
    scale: int
    work: Path
    timeout: float
    tell: Callable[[str], None]

    @property
    def address(self) -> str:
        """Of the store of whichever run is under way."""
        return f"unix://{self.work}/store.sock"

    @property
    def journal(self) -> Path:
        return self.work / "journal.jsonl"

    def environment(self) -> dict[str, str]:
        """The variables of every process. The policy is one of them, and all that users set for it."""
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
            FOLDER: str(self.work),
        }

    def events(self) -> list[Event]:
        """What the policy did in all runs so far."""
        return list(read_events(log_file(SCOPE, self.work / "events")))


@dataclass(frozen=True)
class Row:
    """One run, for the table.

    Attributes:
        host, fault: which.
        seconds: from asking for the run to its end.
        until_fault: of these, till the plug was pulled.
        scratch: seconds that a rerun from scratch takes: till the fault, and an undisturbed run.
        reloaded: tasks whose output came back from a checkpoint.
        rerun: tasks that began more than once, with how often.
        report: the job's answer.
    """

    host: str
    fault: str
    seconds: float
    until_fault: float
    scratch: float
    reloaded: tuple[str, ...]
    rerun: tuple[str, ...]
    report: dict[str, Any]


def made_again(lines: Sequence[Line]) -> tuple[str, ...]:
    """The tasks that began more than once, in the job's order."""
    begun = Counter(line.task for line in lines if line.what == "begin")
    return tuple(name if begun[name] == 2 else f"{name} x{begun[name] - 1}" for name in NAMES if begun[name] > 1)


def came_back(events: Sequence[Event]) -> tuple[str, ...]:
    """The tasks whose outputs were loaded from checkpoints, each once."""
    found = [event.task.rpartition(".")[2] for event in events if event.kind == "reloaded"]
    return tuple(dict.fromkeys(found))
