"""The benchmark runs, and its results can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_store_benchmark_leaves_figures_for_every_way(tmp_path: Path) -> None:
    sizes = ["--large-mib", "4", "--count", "2000", "--repeats", "2", "--small-repeats", "20", "--capacity-mib", "256"]
    command = [sys.executable, "-m", "benchmarks.store", "--out", str(tmp_path), *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "store.json").read_text())
    ways: dict[str, set[str]] = {}
    for figure in result["figures"]:
        assert 0 < figure["best_seconds"] <= figure["median_seconds"] <= figure["worst_seconds"]
        ways.setdefault(figure["case"], set()).add(figure["way"])
    assert len(ways) == 9
    assert all({"entrepot", "pickle to tmpfs"} <= found for found in ways.values())
    assert ways["put 4 MiB float64"] == {"entrepot", "memcpy (warm pages)", "pickle to tmpfs"}
    assert result["machine"]["cpus"] >= 1
    assert (tmp_path / "store.md").read_text().startswith("| case")
