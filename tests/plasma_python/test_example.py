"""The example: a program for Plasma in which one line changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/plasma/dataframes.py"
OURS = "import entrepot.plasma as plasma  # was: import pyarrow.plasma as plasma\n"
THEIRS = "import pyarrow.plasma as plasma\n"
PRINTED = [*["100000 rows, columns a, b, sum of b: 50000"] * 2, "still in the store: False"]


def _run(python: str, program: Path, socket: str) -> list[str]:
    done = subprocess.run([python, "-W", "ignore", str(program), socket], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_runs(socket_name: str) -> None:
    assert sorted(_run(sys.executable, EXAMPLE, socket_name)) == PRINTED


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_with_the_former_import_it_runs_on_plasma(socket_folder: Path) -> None:
    from stock_plasma import interpreter, server

    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(OURS) == 1
    program = socket_folder / "dataframes.py"
    program.write_text(text.replace(OURS, THEIRS), encoding="utf-8")
    python = interpreter()
    with server(socket_folder / "plasma"):
        assert sorted(_run(python, program, str(socket_folder / "plasma"))) == PRINTED
