"""Programs that run several DAGs or jobs for the tests of a module, and record each one's outcome on its own.

Starting an orchestrator is expensive, so one program runs everything that a module needs. If a step raises, or ends the
program, only the tests that ask for its result fail, each with that step's error.
"""

from __future__ import annotations

import json
import os
import subprocess
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT_CHARACTERS = 20_000


class Recorder:
    """Used by the program: runs steps and writes their outcomes to a file, after each step.

    Args:
        file: file to write.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, dict[str, Any]] = {}

    def run(self, name: str, step: Callable[[], Any]) -> None:
        """Run a step; record what it returns, or the error that it raises."""
        try:
            outcome = {"value": step()}
        except Exception:
            outcome = {"problem": traceback.format_exc()}
        self._outcomes[name] = outcome
        new_file = self._file.with_suffix(".new")  # a killed program leaves the outcomes of the steps before
        new_file.write_text(json.dumps(self._outcomes))
        new_file.rename(self._file)


@dataclass
class StepResults:
    """Used by the tests: outcomes of a program's steps.

    Attributes:
        outcomes: what :class:`Recorder` wrote.
        end: how the program ended.
        output: its output.
    """

    outcomes: dict[str, dict[str, Any]]
    end: str
    output: str

    def value(self, name: str) -> Any:
        """Return what a step returned; if it failed, fail the test with its error."""
        outcome = self.outcomes.get(name, {"problem": f"the program {self.end} before this step was done"})
        assert "problem" not in outcome, f"{name}: {outcome['problem']}\n{self.output[-OUTPUT_CHARACTERS:]}"
        return outcome["value"]


def run_program(
    command: Sequence[str], file: Path, *, environment: Mapping[str, str], folder: Path, timeout: float = 600.0
) -> StepResults:
    """Run a program, which can import this module, and return the outcomes of its steps.

    Args:
        command: the program and its arguments.
        file: the file that its recorder writes.
        environment: its complete environment.
        folder: its working directory.
        timeout: seconds after which it is killed.
    """
    log = file.with_suffix(".log")
    search_path = os.pathsep.join(filter(None, [str(Path(__file__).parent), environment.get("PYTHONPATH", "")]))
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=dict(environment) | {"PYTHONPATH": search_path},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            end = f"ended with {process.wait(timeout)}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            end = f"was killed after {timeout:g} s"
    outcomes = json.loads(file.read_text()) if file.exists() else {}
    return StepResults(outcomes, end, log.read_text(errors="replace"))
