"""A step that fails, or ends its program, takes no other step's result with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from recorded_steps import StepResults, run_program

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

from recorded_steps import Recorder


def fail():
    raise RuntimeError("told to fail")


def die():
    print("about to die", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


recorder = Recorder(Path(sys.argv[1]))
recorder.run("good", lambda: {"answer": 42})
recorder.run("bad", fail)
recorder.run("after", lambda: None)
recorder.run("last", {"die": die, "hang": lambda: time.sleep(600)}[sys.argv[2]])
"""


def run(folder: Path, last: str, timeout: float = 60.0) -> StepResults:
    program, file = folder / "program.py", folder / "found.json"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(file), last]
    return run_program(command, file, environment=os.environ, folder=folder, timeout=timeout)


def test_each_step_has_its_own_outcome(tmp_path: Path) -> None:
    results = run(tmp_path, "die")
    assert results.value("good") == {"answer": 42}
    assert results.value("after") is None
    with pytest.raises(AssertionError, match="RuntimeError: told to fail"):
        results.value("bad")
    with pytest.raises(
        AssertionError, match=r"last: the program ended with -9 before this step was done\nabout to die"
    ):
        results.value("last")


def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    results = run(tmp_path, "hang", timeout=2.0)
    with pytest.raises(AssertionError, match="last: the program was killed after 2 s before this step was done"):
        results.value("last")
