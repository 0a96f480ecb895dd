"""No committed file depends on the machine or network on which it was written."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# This checkout, the home directory of the user who runs the tests, and two directories of build machines. Concatenated,
# so that this file does not match itself.
_MACHINE_PATTERNS = [
    re.escape(f"{ROOT}/"),
    re.escape(os.path.expanduser("~") + "/"),
    r"(?<![\w.])/ro" + "ot/",
    r"(?<![\w.])/wo" + "rk/",
]
MACHINE_PATHS = re.compile("|".join(_MACHINE_PATTERNS))
LOCKS = [
    "requirements.lock",
    "requirements-docs.lock",
    "requirements-pandas2.lock",
    *sorted(f"tests/environments/{path.name}" for path in (ROOT / "tests/environments").glob("*.lock")),
]


def _committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []  # an image


def test_no_file_names_a_path_of_a_machine() -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in _committed()
        for number, line in enumerate(_lines(path), start=1)
        if MACHINE_PATHS.search(line)
    ]
    assert matches == []


def test_the_control_knows_a_machine_path() -> None:
    assert MACHINE_PATHS.search(f"see {ROOT}/core")
    assert not MACHINE_PATHS.search("https://example.org/network/x and /tmp/x")


@pytest.mark.parametrize("name", LOCKS)
def test_locks_pin_every_package_by_hash_and_name_no_index(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text
    pins = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    assert pins
    assert [line for line in pins if "==" not in line] == []
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert [block.splitlines()[0] for block in blocks if "==" in block and "--hash=sha256:" not in block] == []


def test_scripts_can_be_run() -> None:
    for path in [ROOT / ".ci/run"]:
        assert path.stat().st_mode & 0o111, f"{path.name} is not executable"


def test_make_lets_python_keep_what_it_compiles() -> None:
    """Container images often set PYTHONDONTWRITEBYTECODE; then every process of the tests compiles its orchestrator."""
    command = ["make", "--no-print-directory", "--eval", "show: ; @echo $${PYTHONDONTWRITEBYTECODE-unset}", "show"]
    shown = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "unset\n"
