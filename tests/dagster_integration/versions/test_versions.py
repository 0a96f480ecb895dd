"""The integration's tests with the oldest version of Dagster that is declared, and with the newest."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dagster_environments import NEWEST, OLDEST, ROOT, python_of, variables

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(900)]

TESTS = [
    "test_typed_inputs.py",
    "test_fanned_in.py",
    "test_partition_tables.py",
    "test_tiers.py",
    "test_tier_deletes.py",
    "test_overriding.py",
]
LEAST_PASSED = 20


def versions_of(python: Path, tmp_path: Path) -> str:
    code = "import importlib.metadata as m; print(m.version('dagster'))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    return done.stdout.strip()


@pytest.mark.parametrize("environment", [OLDEST, NEWEST])
def test_the_io_managers_with_this_version(environment: str, tmp_path: Path, module_daemon: Any) -> None:
    python = python_of(environment)
    declared = re.search(r'^dagster = \["dagster>=([\d.]+),', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    version = versions_of(python, tmp_path)
    if environment == OLDEST:
        assert version.startswith(f"{declared[1]}.")
    elif version == importlib.metadata.version("dagster"):
        pytest.skip(f"the other tests run with this version, {version}")
    options = ["-q", "--color=no", "-m", "not e2e and not exhaustive", "--timeout", "300", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *options, *(f"tests/dagster_integration/{name}" for name in TESTS)],
        cwd=ROOT,
        env=variables(environment, tmp_path, module_daemon.address),
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    passed = re.search(r"(\d+) passed", done.stdout.splitlines()[-1])
    assert passed is not None
    assert int(passed[1]) >= LEAST_PASSED
