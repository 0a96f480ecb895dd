"""The tests of dagster-duckdb's libraries, from their sources, with a store over DuckDB instead of DuckDB alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dagster_environments import NEWEST, python_of, source_distribution, variables

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(900)]

# What the tests' steps read: of ops, assets, two columns and partitions, twice for each of two kinds of IO managers.
LEAST_FROM_STORE = 12


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_types_columns_and_partitions(library: str, tmp_path: Path, module_daemon: Any) -> None:
    python = python_of(NEWEST)
    tests = f"dagster_duckdb_{library}_tests"
    sources = source_distribution(f"dagster-duckdb-{library}", tests, tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    environment = variables(NEWEST, home, module_daemon.address)
    del environment["DAGSTER_HOME"]  # the tests have instances of their own
    options = ["-q", "--no-header", "--color=no", "-p", "no:cacheprovider", "-p", "substituted_database"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *options, "--timeout", "300", tests],
        cwd=sources,
        env={**environment, "PYTHONPATH": f"{sources}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    reads = re.search(r"inputs: (\d+) from the store, (\d+) from DuckDB", done.stdout)
    assert reads is not None
    assert int(reads[1]) >= LEAST_FROM_STORE
    assert int(reads[2]) == 0
