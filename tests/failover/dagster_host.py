"""The host process of the Dagster cases, as the tests see it; dagster_process.py is what it runs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster_process

TIMEOUT_SECONDS = 600.0


class JobProcess:
    """Process that runs the cases of this module, with step processes of one start method.

    Args:
        folder: directory of its instance and its log.
        start: ``forkserver`` or ``spawn``; ``in_process``: steps are not processes.
    """

    def __init__(self, folder: Path, start: str) -> None:
        self.home = create_instance_folder(folder / "home")
        self.log = folder / "host.log"
        self._case_count = 0
        self._folder = folder
        self._unanswered = False
        variables = {"DAGSTER_HOME": str(self.home), "FAILOVER_START": start}
        variables[dagster_process.SETTINGS_VARIABLE] = str(folder / "settings.json")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, dagster_process.__file__],
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    def run(self, settings: dict[str, str], failed: str = "") -> list[str]:
        """Run a case; return the IDs of its runs."""
        self._case_count += 1
        job_file = self._folder / f"case_{self._case_count}.py"
        job_file.symlink_to(Path(__file__).with_name("dagster_jobs.py"))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._unanswered = True
        self._process.stdin.write(json.dumps({"jobs": str(job_file), "settings": settings, "failed": failed}) + "\n")
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_SECONDS)
        assert ready, f"no answer within {TIMEOUT_SECONDS:g} s:\n{self.log_tail()}"
        line = self._process.stdout.readline()
        assert line, f"the host has ended:\n{self.log_tail()}"
        self._unanswered = False
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        runs: list[str] = answer["runs"]
        return runs

    @property
    def is_usable(self) -> bool:
        """Whether it can run another case: it runs, and has answered the last one."""
        return not self._unanswered and self._process.poll() is None

    def log_text(self, begin: int) -> str:
        """Its log from this byte on."""
        return self.log.read_bytes()[begin:].decode(errors="replace")

    def log_tail(self) -> str:
        """End of its log."""
        return self.log_text(0)[-4000:]

    def stop(self) -> None:
        """Stop it and the server of its step processes."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended before it read everything
            self._process.stdin.close()
        try:
            self._process.wait(30.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def create_instance_folder(folder: Path, extra_configuration: str = "") -> Path:
    """Create a directory for a Dagster instance."""
    folder.mkdir()
    (folder / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{extra_configuration}")
    return folder
