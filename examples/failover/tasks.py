"""The six functions of the flights job, wrapped to write a journal line when they begin and when they end.

The journal tells the demo, from outside, which process to kill and when, and what ran again.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from examples.flights import job

FOLDER_VARIABLE = "FAILOVER_FOLDER"
HOST_VARIABLE = "FAILOVER_HOST"  # set on each host of a cluster
HELD_TASKS = ("train",)  # so that a fault surely reaches them, however little data there is
HOLD_SECONDS = 120.0
TASK_NAMES = ("load", "join", "features", "train", "score", "report")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class JournalLine:
    """A line of the journal.

    Attributes:
        task: which.
        what: ``"begin"`` or ``"end"``.
        pid: of the process that runs it.
        time: seconds since the epoch.
        host: where, in a cluster; otherwise empty.
    """

    task: str
    what: str
    pid: int
    time: float
    host: str = ""


def journal_path() -> Path:
    """The journal of the current run."""
    return Path(os.environ[FOLDER_VARIABLE]) / "journal.jsonl"


def hold_path() -> Path:
    """A file beside the journal: while it exists, tasks of :data:`HELD_TASKS` wait after they have begun."""
    return journal_path().with_name("hold")


def _wait_while_held() -> None:
    end = time.monotonic() + HOLD_SECONDS
    while hold_path().exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{hold_path()} is still there after {HOLD_SECONDS:g} s; remove it")
        time.sleep(0.01)


def read_journal(path: Path) -> list[JournalLine]:
    """The lines written so far, except an incomplete last one."""
    if not path.exists():
        return []
    return [
        JournalLine(**json.loads(line)) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")
    ]


def _write_journal_line(task: str, what: str) -> None:
    line = JournalLine(task, what, os.getpid(), time.time(), os.environ.get(HOST_VARIABLE, ""))
    with journal_path().open("a") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def journaled(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it writes its journal lines."""

    @functools.wraps(function)
    def run(*args: P.args, **keyword_arguments: P.kwargs) -> R:
        _write_journal_line(function.__name__, "begin")
        if function.__name__ in HELD_TASKS:
            _wait_while_held()
        result = function(*args, **keyword_arguments)
        _write_journal_line(function.__name__, "end")
        return result

    run.__module__ = __name__  # where pickle finds it by name
    return run


load: Callable[..., Any] = journaled(job.load)
join: Callable[..., Any] = journaled(job.join)
features: Callable[..., Any] = journaled(job.features)
train: Callable[..., Any] = journaled(job.train)
score: Callable[..., Any] = journaled(job.score)
report: Callable[..., Any] = journaled(job.report)
