"""A Kedro project in which one process of a run gets a signal at one step, and what the project uses to send it.

The run's environment says which: ``STRIKE="save daemon SIGSTOP"``. A process that was stopped is continued after
``STRIKE_SECONDS``, by a process that first makes sure that it is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "failover"))

import faults

STEPS = ("load", "node", "save", "saved", "release", "checkpoint")
PROCESSES = ("parent", "worker", "daemon", "keeper", "resource tracker")
WATCHDOG_SECONDS = 60.0
ROWS = 100_000
ANSWER = [ROWS * (ROWS - 1), 2]

POLICY = """
version: 1
checkpoint: {{target: "{target}", rules: [{{match: {{dataset: doubled}}}}]}}
failover: [{{on: daemon_lost, do: [{{retry: {{attempts: 20, delay: 200ms}}}}]}}]
"""
PROJECT_FILES = {
    "conf/base/catalog.yml": """
"{name}":
  type: struck.datasets.StruckDataset
  name: "{name}"
""",
    "src/struck/settings.py": """
from struck.hooks import RecordParent

HOOKS = (RecordParent(),)
""",
    "src/struck/hooks.py": """
import os
from pathlib import Path

from kedro.framework.hooks import hook_impl


class RecordParent:
    @hook_impl
    def before_pipeline_run(self):
        Path("parent").write_text(str(os.getpid()))
""",
    "src/struck/datasets.py": """
from entrepot_kedro import EntrepotDataset
from kedro_strikes import strike


class StruckDataset(EntrepotDataset):
    def load(self):
        if self.name == "doubled":
            strike("load")
        return super().load()

    def save(self, data):
        if self.name == "first":
            strike("save")
        super().save(data)
        if self.name == "first":
            strike("saved")

    def _release(self):
        if self.name == "values":
            strike("release")
        super()._release()
""",
    "src/struck/nodes.py": f"""
import json
import os
from pathlib import Path

import numpy as np

import kedro_strikes

kedro_strikes.strike_checkpoints()


def record(name):
    Path("worker").write_text(str(os.getpid()))
    with open("journal", "a") as journal:
        journal.write(name + "\\n")


def make():
    record("make")
    return np.arange({ROWS})


def double(values):
    record("double")
    return values * 2


def first(doubled):
    record("first")
    kedro_strikes.strike("node")
    return int(doubled[1])


def last(doubled, first_number):
    record("last")
    Path("answer").write_text(json.dumps([int(doubled.sum()), first_number]))
""",
    "src/struck/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from struck import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(nodes.make, None, "values", name="make"),
                node(nodes.double, "values", "doubled", name="double"),
                node(nodes.first, "doubled", "first", name="first"),
                node(nodes.last, ["doubled", "first"], None, name="last"),
            ]
        )
    }
""",
}


def strike(step: str) -> None:
    """Send the signal that is due at a step, once per project."""
    due_step, _, rest = os.environ.get("STRIKE", "").partition(" ")
    if due_step != step:
        return
    process, _, signal_name = rest.rpartition(" ")
    try:
        with open("struck", "x") as file:
            pid = _pid_of(process)
            file.write(str(pid))
    except FileExistsError:
        return
    number = signal.Signals[signal_name]
    if number == signal.SIGSTOP:  # first, because it may be this process
        subprocess.Popen(
            [sys.executable, __file__, str(pid), os.environ["STRIKE_SECONDS"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    os.kill(pid, number)


def strike_checkpoints() -> None:
    """Make the step ``checkpoint`` known in this process: right before a checkpoint is written."""
    if not os.environ.get("STRIKE", "").startswith("checkpoint "):
        return
    from entrepot_checkpoints import writer

    save: Callable[..., Any] = writer.save

    def save_struck(*arguments: Any, **options: Any) -> Any:
        strike("checkpoint")
        return save(*arguments, **options)

    writer.save = save_struck


def continue_later(pid: int, seconds: float) -> None:
    """Continue a process that is being stopped, after a time; record when it was certainly stopped, and until when."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while _state(pid) != "T":
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} is not stopped, but {_state(pid)!r}")
        time.sleep(0.01)
    Path("stopped").write_text(str(time.time()))
    time.sleep(seconds)  # the fault itself
    Path("continued.new").write_text(str(time.time()))
    os.rename("continued.new", "continued")
    os.kill(pid, signal.SIGCONT)


def _pid_of(process: str) -> int:
    if process in ("daemon", "keeper"):
        from entrepot._daemon import settings

        daemon, keeper = faults.store_pids(settings.private_address())
        return daemon if process == "daemon" else keeper
    if process == "resource tracker":
        return _resource_tracker(int(Path("parent").read_text()))
    return int(Path(process).read_text())


def _resource_tracker(parent: int) -> int:
    """PID of the process that multiprocessing starts beside workers that are not forked."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if _status(int(folder.name), "PPid") == str(parent):
                command = (folder / "cmdline").read_bytes()
                if b"multiprocessing.resource_tracker" in command:
                    return int(folder.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise LookupError(f"process {parent} has no resource tracker")


def _status(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].split()[0] for line in lines if line.startswith(f"{key}:"))


def _state(pid: int) -> str:
    return _status(pid, "State")


if __name__ == "__main__":
    continue_later(int(sys.argv[1]), float(sys.argv[2]))
