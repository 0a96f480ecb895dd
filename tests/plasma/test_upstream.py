"""Plasma's own tests, from the wheel of pyarrow 11, against the front end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# A case of each kind; the others sleep, or put tens of thousands of objects.
SOME = "test_create or test_evict or test_put_and_get or test_plasma_list or test_store_full or test_eviction"


def run_upstream(python: Path, folder: Path, *options: str) -> str:
    """Run the tests of a copy of the wheel whose server is ours; return the last line of the output."""
    installed = next(python.parents[1].glob("lib/python*/site-packages/pyarrow"))
    # Links suffice, except for the server, which is looked for in the package's own folder.
    package = folder / "pyarrow"
    shutil.copytree(installed, package, copy_function=os.link if _same_disk(installed, folder) else shutil.copy2)
    server = package / "plasma-store-server"
    server.unlink()
    server.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).with_name('fresh_store.py')}' \"$@\"\n", encoding="utf-8"
    )
    server.chmod(0o755)
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests/test_plasma.py"), *options],
        cwd=folder,
        env=os.environ | {"PYARROW_TEST_PLASMA": "ON", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    return run.stdout.strip().splitlines()[-1]


def _same_disk(first: Path, second: Path) -> bool:
    return first.stat().st_dev == second.stat().st_dev


@pytest.mark.timeout(300)
def test_some_of_plasmas_own_tests(stock_python: Path, tmp_path: Path) -> None:
    assert re.search(r"\b1\d passed", run_upstream(stock_python, tmp_path, "-k", SOME))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_plasmas_own_tests(stock_python: Path, tmp_path: Path) -> None:
    assert "33 passed, 1 skipped" in run_upstream(stock_python, tmp_path)


def test_the_server_is_ours() -> None:
    fresh = Path(__file__).with_name("fresh_store.py")
    version = subprocess.run(
        [sys.executable, str(fresh), "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert version.stdout.startswith("entrepot-plasma-store ")
