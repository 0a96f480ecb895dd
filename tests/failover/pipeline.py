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

FOLDER_VARIABLE = "FAILOVER_FOLDER"  # environment variable with the directory of faults, journal and result
ROWS = 200_000
TASKS = ("numbers", "left", "right", "strike", "join", "report")
ANSWER = int(np.arange(ROWS, dtype=np.int64).sum() * 5)

Array = npt.NDArray[np.int64]


def folder() -> Path:
    """Directory of this run's files for the tests."""
    return Path(os.environ[FOLDER_VARIABLE])


def record_start(task: str) -> int:
    """Record that a task begins; return how often it has begun, including this time."""
    with (folder() / "journal").open("a+") as journal:  # one write per line, so that concurrent lines stay whole
        journal.write(f"{task}\n")
        journal.flush()
        journal.seek(0)
        return journal.read().split().count(task)


def start_counts(case_folder: Path) -> dict[str, int]:
    """Number of starts of each task."""
    lines = (case_folder / "journal").read_text().split() if (case_folder / "journal").exists() else []
    return {task: lines.count(task) for task in TASKS}


def numbers() -> Array:
    record_start("numbers")
    return np.arange(ROWS, dtype=np.int64)


def left(values: Array) -> Array:
    record_start("left")
    return values * 2


def right(values: Array) -> Array:
    record_start("right")
    return values * 3


def strike() -> None:
    import faults

    if record_start("strike") == 1:
        faults.inject(folder())


def join(doubled: Array, tripled: Array) -> Array:
    import faults

    faults.fail_join(folder(), record_start("join"))
    return doubled + tripled


def report(joined: Array) -> int:
    record_start("report")
    answer = int(joined.sum())
    (folder() / "answer").write_text(str(answer))
    return answer
