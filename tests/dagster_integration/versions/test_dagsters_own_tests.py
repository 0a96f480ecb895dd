"""Dagster's own tests of IO managers, from its sources, with Entrepot's in the place of the filesystem's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dagster_environments import NEWEST, ROOT, python_of, source_distribution, variables

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(900)]

STORAGE = "dagster_tests/storage_tests"
FILES = [
    f"{STORAGE}/test_io_manager.py",
    f"{STORAGE}/test_fs_io_manager.py",
    f"{STORAGE}/test_io_managers_pythonic_config.py",
    f"{STORAGE}/test_io_managers_with_graphs.py",
    f"{STORAGE}/test_io_manager_composites.py",
    f"{STORAGE}/test_io_manager_asset_metadata.py",
    f"{STORAGE}/branching_io_manager_tests",
    "dagster_tests/core_tests/partition_tests/test_partitioned_io_manager.py",
]
LEAST_PASSED = 80
LOOKS_AT_FILES = "looks at files, at their paths, or at the metadata `path`"
OWN_ERROR = "wants Dagster's error for what cannot be pickled; the store's is UnsupportedType"
OLD_FILES = "reads files that an old version of Dagster has written"
ONE_PARTITION = "wants an error of types: an input annotated with a dictionary is one here also of one partition"
# Also in docs/orchestrators/dagster.md.
EXPECTED_FAILURES = {
    f"{STORAGE}/test_fs_io_manager.py": {
        "test_fs_io_manager": LOOKS_AT_FILES,
        "test_fs_io_manager_base_dir": LOOKS_AT_FILES,
        "test_fs_io_manager_handles_assets": LOOKS_AT_FILES,
        "test_fs_io_manager_partitioned": LOOKS_AT_FILES,
        "test_fs_io_manager_partitioned_graph_backed_asset": LOOKS_AT_FILES,
        "test_fs_io_manager_escapes_path_operators_in_partition_keys": LOOKS_AT_FILES,
        "test_fs_io_manager_none_value_no_metadata": LOOKS_AT_FILES,
        "test_fs_io_manager_unpicklable": OWN_ERROR,
        "test_backcompat_multipartitions_fs_io_manager": OLD_FILES,
    },
    f"{STORAGE}/test_io_managers_pythonic_config.py": {
        "test_pythonic_fs_io_manager": LOOKS_AT_FILES,
        "test_pythonic_fs_io_manager_runtime_config": LOOKS_AT_FILES,
        "test_io_manager_def": LOOKS_AT_FILES,
    },
    "dagster_tests/core_tests/partition_tests/test_partitioned_io_manager.py": {
        "test_partitioned_io_manager_single_partition_dependency_errors_with_wrong_typing": ONE_PARTITION,
    },
}


def test_only_what_files_alone_can_do_fails(tmp_path: Path, module_daemon: Any) -> None:
    python = python_of(NEWEST)
    sources = source_distribution("dagster", "dagster_tests", tmp_path)
    (sources / "dagster_tests/conftest.py").unlink()  # needs dagster-test, which is not on the package index
    home = tmp_path / "home"
    home.mkdir()
    environment = variables(NEWEST, home, module_daemon.address)
    del environment["DAGSTER_HOME"]  # the tests have instances of their own
    options = ["-q", "--no-header", "--color=no", "-p", "no:cacheprovider", "-p", "substituted_io_manager", "-rfE"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *options, "--timeout", "300", *FILES],
        cwd=sources,
        env={**environment, "PYTHONPATH": f"{sources}:{Path(__file__).parent}", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=850,
    )
    summary = done.stdout.partition("short test summary info")[2]
    failed = {
        (file, name) for file, name in re.findall(r"^(?:FAILED|ERROR) (\S+?)::(\w+)", summary, re.MULTILINE) if name
    }
    expected = {(file, name) for file, names in EXPECTED_FAILURES.items() for name in names}
    assert failed == expected, done.stdout[-20_000:]
    passed = re.search(r"(\d+) passed", summary)
    assert passed is not None
    assert int(passed[1]) >= LEAST_PASSED


def test_the_documentation_lists_what_fails() -> None:
    page = (ROOT / "docs/orchestrators/dagster.md").read_text()
    missing = [name for names in EXPECTED_FAILURES.values() for name in names if f"`{name}`" not in page]
    assert missing == []
