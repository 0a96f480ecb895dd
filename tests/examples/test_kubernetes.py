"""The Kubernetes demo on a small scale: every pod finds its data, and the chart is drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubecp_build
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(200)
def test_the_demonstration(control_plane: Any, tmp_path: Path) -> None:
    """The demo starts its own control plane; the fixture only ensures that one can be built, and marks this test."""
    arguments = ["--nodes", "2", "--shards", "3", "--rows", "1000", "--out", str(tmp_path)]
    variables = os.environ | {"XDG_CACHE_HOME": str(kubecp_build.CACHE.parent)}  # where the built binary is cached
    command = [sys.executable, "-m", "examples.kubernetes", *arguments]
    process = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=180)
    assert process.returncode == 0, process.stdout + process.stderr
    rows = json.loads((tmp_path / "results.json").read_text())
    assert len(rows) == 9
    assert all(set(row["homes"].values()) <= {row["node"]} for row in rows)
    assert (tmp_path / "placement.png").read_bytes().startswith(b"\x89PNG")
    assert "local:" in (tmp_path / "results.txt").read_text()
