"""The pipeline that faults strike, in terms of no host.

    numbers ──▶ left ───▶ join ──▶ report
        └─────▶ right ──▶ ▲
                strike ···┘ (an order, no value)

``strike`` does the fault, once, when everything that ``join`` reads was made and before it is read. Each task writes
what it begins into a journal, so a test knows what ran how often whichever process it was in.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = "FAILOVER_FOLDER"  # the variable that names the folder of faults, journal and result
ROWS = 200_000
TASKS = ("numbers", "left", "right", "strike", "join", "report")
ANSWER = int(np.arange(ROWS, dtype=np.int64).sum() * 5)

Array = npt.NDArray[np.int64]


def folder() -> Path:
    """Where this run keeps what tests look at."""
    return Path(os.environ[FOLDER])


def begin(task: str) -> int:
    """Note that a task begins, and say how often it has by now, this time included."""
    with (folder() / "journal").open("a+") as journal:  # one write of one line: whole, whoever else writes
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
