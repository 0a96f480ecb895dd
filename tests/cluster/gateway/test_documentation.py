"""The commands of docs/cluster.md with which a cluster is tried on one machine, word for word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
PAGE = Path(__file__).parents[3] / "docs/cluster.md"


def test_two_hosts_on_one_machine() -> None:
    commands = re.search(r"\*\*On one machine\*\*.*?```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert commands is not None
    folder = tempfile.mkdtemp(prefix="ec-")  # short, because of the sockets' addresses
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
    variables |= {
        "TMPDIR": folder,
        "HOME": folder,
        "XDG_STATE_HOME": f"{folder}/state",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            ["bash", "-eu", "-c", commands[1]], env=variables, capture_output=True, text=True, timeout=100, check=False
        )
    finally:
        for socket in Path(folder).glob("*/*.sock"):  # if one of them failed
            stop = [sys.executable, "-m", "entrepot", "stop", "--address", f"unix://{socket}"]
            subprocess.run(stop, env=variables, capture_output=True, timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("  live")] == ["a", "b"]
    assert "[1, 2, 3]" in lines
