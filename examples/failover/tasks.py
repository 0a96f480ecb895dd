"""The six functions of the flights job, wrapped to write a journal line when they begin and when they end.

The journal tells the demo, from outside, which process to kill and when, and what ran again.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from examples.flights import job

FOLDER = "FAILOVER_FOLDER"
NAMES = ("load", "join", "features", "train", "score", "report")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Line:
    """A line of the journal.

    Attributes:
        task: which.
        what: ``"begin"`` or ``"end"``.
        pid: of the process that runs it.
        time: seconds since the epoch.
    """

    task: str
    what: str
    pid: int
    time: float


def journal() -> Path:
    """The journal of the current run."""
    return Path(os.environ[FOLDER]) / "journal.jsonl"


def read_journal(path: Path) -> list[Line]:
    """The lines written so far, except an incomplete last one."""
    if not path.exists():
        return []
    return [Line(**json.loads(line)) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _note(task: str, what: str) -> None:
    line = json.dumps({"task": task, "what": what, "pid": os.getpid(), "time": time.time()})
    with journal().open("a") as file:
        file.write(line + "\n")


def noted(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it writes its journal lines."""

    @functools.wraps(function)
    def run(*args: P.args, **named: P.kwargs) -> R:
        _note(function.__name__, "begin")
        result = function(*args, **named)
        _note(function.__name__, "end")
        return result

    run.__module__ = __name__  # where pickle finds it by name
    return run


load: Callable[..., Any] = noted(job.load)
join: Callable[..., Any] = noted(job.join)
features: Callable[..., Any] = noted(job.features)
train: Callable[..., Any] = noted(job.train)
score: Callable[..., Any] = noted(job.score)
report: Callable[..., Any] = noted(job.report)
