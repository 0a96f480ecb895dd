"""External process of Dagster Pipes that strikes once: ``faulty_pipes_program.py FOLDER WHAT PHASE``.

It doubles the array ``numbers``. The phases: ``opened``, ``got`` its input, ``stored`` its output, which nobody knows
of yet, and ``reported`` it. The first process that comes to the phase creates the file ``struck`` in the folder, with
its ID, and does WHAT: ``kill`` or ``stop`` itself, or ``kill-daemon``. ``enlarge`` puts what no store of a test has
room for.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
from dagster_pipes import open_dagster_pipes
from entrepot_dagster import PipesValues


class Striker:
    """Strikes in one phase, in one process."""

    def __init__(self, folder: Path, what: str, phase: str) -> None:
        self._file, self._what, self._phase = folder / "struck", what, phase

    def reach(self, phase: str) -> None:
        """Strike, if that is to be in this phase and has not been done by an earlier process."""
        if phase != self._phase or self._file.exists():
            return
        part = self._file.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.rename(self._file)
        if self._what == "kill-daemon":
            with entrepot.connect() as store:
                os.kill(store.status()["pid"], signal.SIGKILL)
        else:
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[self._what])


def main(folder: str, what: str, phase: str) -> None:
    striker = Striker(Path(folder), what, phase)
    with open_dagster_pipes() as pipes:
        report = pipes.report_asset_materialization

        def report_later(**fields: Any) -> None:
            striker.reach("stored")
            report(**fields)

        pipes.report_asset_materialization = report_later  # type: ignore[assignment, method-assign]
        striker.reach("opened")
        values = PipesValues(pipes)
        numbers = values.get("numbers")
        striker.reach("got")
        values.put(np.zeros(1 << 30, np.uint8) if what == "enlarge" else numbers * 2)
        striker.reach("reported")


if __name__ == "__main__":
    main(*sys.argv[1:])
