"""The fault pipeline, independent of any orchestrator.

    numbers ──▶ left ───▶ join ──▶ report
        └─────▶ right ──▶ ▲
                strike ···┘ (order only, no value)

``strike`` causes the fault, once, after everything that ``join`` reads was produced and before it is read. Each task
records its start in a journal, so that a test knows how often it ran, in whichever process.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = "FAILOVER_FOLDER"  # environment variable with the directory of faults, journal and result
ROWS = 200_000
TASKS = ("numbers", "left", "right", "strike", "join", "report")
ANSWER = int(np.arange(ROWS, dtype=np.int64).sum() * 5)

Array = npt.NDArray[np.int64]


def folder() -> Path:
    """Directory of this run's files for the tests."""
    return Path(os.environ[FOLDER])


def begin(task: str) -> int:
    """Record that a task begins; return how often it has begun, including this time."""
    with (folder() / "journal").open("a+") as journal:  # one write per line, so that concurrent lines stay whole
        journal.write(f"{task}\n")
        journal.flush()
        journal.seek(0)
        return journal.read().split().count(task)


def runs(of: Path) -> dict[str, int]:
    """How often each task began."""
    lines = (of / "journal").read_text().split() if (of / "journal").exists() else []
    return {task: lines.count(task) for task in TASKS}


def numbers() -> Array:
    begin("numbers")
    return np.arange(ROWS, dtype=np.int64)


def left(values: Array) -> Array:
    begin("left")
    return values * 2


def right(values: Array) -> Array:
    begin("right")
    return values * 3


def strike() -> None:
    import faults

    if begin("strike") == 1:
        faults.strike(folder())


def join(doubled: Array, tripled: Array) -> Array:
    import faults

    faults.in_join(folder(), begin("join"))
    return doubled + tripled


def report(joined: Array) -> int:
    begin("report")
    answer = int(joined.sum())
    (folder() / "answer").write_text(str(answer))
    return answer
