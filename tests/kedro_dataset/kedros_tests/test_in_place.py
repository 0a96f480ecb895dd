"""Kedro's own tests pass with Entrepot's dataset in the place of its in-memory ones, but for those listed here.

Kedro's source distribution has no tests, so this needs a checkout: ``KEDRO_SOURCE=/path/to/kedro``, of the version that
is installed or one near it, and the package ``pytest-mock``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = os.environ.get("KEDRO_SOURCE", "")
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not SOURCE, reason="KEDRO_SOURCE does not name a checkout of Kedro"),
    pytest.mark.skipif(importlib.util.find_spec("pytest_mock") is None, reason="pytest-mock is not installed"),
]

TESTS = (
    "tests/runner",
    "tests/io/test_memory_dataset.py",
    "tests/io/test_shared_memory_dataset.py",
    "tests/io/test_cached_dataset.py",
)
TESTS_OF_WORKERS = tuple(
    f"tests/runner/test_{name}.py" for name in ("parallel_runner", "only_missing_outputs", "resume_logic")
)
UNSAVED = "expects the text 'Data for MemoryDataset has not been saved yet'; ours names key, session and store"
DIFFERENCES = {
    "TestInvalidParallelRunner::test_memory_dataset_not_serialisable": "expects the text of "
    "SharedMemoryDataset's error; ours is an UnsupportedType that names the type",
    "test_missing_input_memory_dataset_exists_in_catalog_throws_not_saved_error": UNSAVED,
    "TestValidThreadRunner::test_thread_run_with_patterns": UNSAVED,
    "::test_loading_none": UNSAVED,
    "TestCachedDataset::test_load_empty": UNSAVED,
    "TestCachedDataset::test_release": UNSAVED,
    "TestMemoryDataset::test_load_infer_mode": "counts the calls of a private function of MemoryDataset",
    "TestMemoryDataset::test_save_infer_mode": "counts the calls of a private function of MemoryDataset",
    "::test_str_repr_representation": "expects MemoryDataset's own representation",
    "TestCachedDataset::test_repr": "expects MemoryDataset's own representation",
    "TestCachedDataset::test_str": "expects MemoryDataset's own representation",
    "TestCachedDataset::test_pickle": "pickles the MemoryDataset of Kedro's cache, which is replaced",
}


def failed_tests(tests: Sequence[str], *options: str, **variables: str) -> set[str]:
    """Run some of Kedro's tests, and return the IDs of those that fail."""
    least_passed = 300 if tests == TESTS else 50
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "-p", "no:cacheprovider", "-o", "addopts=", *tests],
        cwd=SOURCE,
        env=os.environ | {"DO_NOT_TRACK": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode in (0, 1), process.stdout[-5000:] + process.stderr[-5000:]
    passed = re.search(r"(\d+) passed", process.stdout)
    assert passed is not None, process.stdout[-5000:]
    assert int(passed[1]) > least_passed, process.stdout[-5000:]
    return set(re.findall(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", process.stdout, re.MULTILINE))


@pytest.fixture
def _store(daemon: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)  # type: ignore[attr-defined]
    monkeypatch.setenv("ENTREPOT_SCOPE", "tests")
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)


def failed_in_place(tests: Sequence[str], **variables: str) -> set[str]:
    """Return the IDs of Kedro's tests that fail with the dataset in place, and not without."""
    without = failed_tests(tests, **variables)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return failed_tests(tests, "-p", "in_place", PYTHONPATH=path, **variables) - without


def unexpected(failed: set[str]) -> list[str]:
    return sorted(test for test in failed if not any(part in test for part in DIFFERENCES))


@pytest.mark.usefixtures("_store")
def test_kedros_own_tests() -> None:
    failed = failed_in_place(TESTS)
    assert not unexpected(failed)
    unneeded = {part for part in DIFFERENCES if not any(part in test for test in failed)}
    assert not unneeded, f"these pass: {sorted(unneeded)}"


@pytest.mark.usefixtures("_store")
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_kedros_own_tests_of_worker_processes(start: str) -> None:
    assert not unexpected(failed_in_place(TESTS_OF_WORKERS, KEDRO_MP_CONTEXT=start))
