"""A Kedro project with the fault pipeline, and ``kedro run`` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from kedro_projects import write_project

SCOPE = "failover"
RUN_SECONDS = 300.0
TEST_FOLDER = Path(__file__).resolve().parent

PROJECT_FILES = {
    "conf/base/catalog.yml": """
"{name}":
  type: entrepot_kedro.EntrepotDataset
""",
    "src/struck/nodes.py": """
import pipeline as steps


def gate(left, right):
    return "made"


def strike(ready):  # not what `join` reads: that would be in use, and nothing takes it away then
    steps.strike()
    return "struck"


def join(left, right, struck):
    return steps.join(left, right)
""",
    "src/struck/pipeline_registry.py": """
import pipeline as steps
from kedro.pipeline import node, pipeline

from struck import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(steps.numbers, None, "numbers", name="numbers"),
                node(steps.left, "numbers", "left", name="left"),
                node(steps.right, "numbers", "right", name="right"),
                node(nodes.gate, ["left", "right"], "ready", name="gate"),
                node(nodes.strike, "ready", "struck", name="strike"),
                node(nodes.join, ["left", "right", "struck"], "joined", name="join"),
                node(steps.report, "joined", "answer", name="report"),
            ]
        )
    }
""",
}


@dataclass
class Project:
    """A project in its own directory.

    Attributes:
        folder: directory of the project.
        work: directory of faults, journal and answer.
        address: address of the store; "": the private one, which a run's `variables` name.
        policy: policy file; None: no policy.
        outputs: output of all runs.
    """

    folder: Path
    work: Path
    address: str
    policy: Path | None = None
    outputs: list[str] = field(default_factory=list[str])

    def write(self) -> None:
        """Write the project's files."""
        write_project(self.folder, "struck", PROJECT_FILES)

    def run(self, *arguments: str, **variables: str) -> int:
        """Run ``kedro run``; return its exit code, negative for the signal that ended it.

        Args:
            arguments: of the command.
            variables: of its environment.
        """
        environment = os.environ | {
            "ENTREPOT_SCOPE": SCOPE,
            "ENTREPOT_EVENTS": str(self.work / "events"),
            "FAILOVER_FOLDER": str(self.work),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(TEST_FOLDER), os.environ.get("PYTHONPATH", "")])),
            "KEDRO_DISABLE_TELEMETRY": "1",
            "DO_NOT_TRACK": "1",
            "COLUMNS": "2000",  # prevents wrapping of log lines
        }
        if self.address:
            environment["ENTREPOT_ADDRESS"] = self.address
        if self.policy is not None:
            environment["ENTREPOT_POLICY"] = str(self.policy)
        process = subprocess.Popen(
            [sys.executable, "-m", "kedro", "run", *arguments],
            cwd=self.folder,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise TimeoutError(f"kedro run took more than {RUN_SECONDS:g} s:\n{output}") from None
        self.outputs.append(output)
        return process.returncode

    @property
    def output_text(self) -> str:
        """Output of all runs, on one line."""
        return " ".join(" ".join(self.outputs).split())
