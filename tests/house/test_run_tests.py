"""The staged runner tells a run without tests from a run that passed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/run_tests.py as a module that writes its logs into the test's folder."""
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools/run_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path)
    return module


@pytest.mark.parametrize(
    ("line", "passed", "failed"),
    [
        ("100% tests passed, 0 tests failed out of 7", 7, 0),
        ("71% tests passed, 2 tests failed out of 7", 5, 2),
        ("=========== 5 passed, 1 skipped in 0.31s ===========", 5, 0),
        ("== 2 failed, 5 passed, 1 deselected, 1 error in 61.20s (0:01:01) ==", 5, 3),
        ("7 passed in 1.05s", 7, 0),
        ("nothing of the kind", 0, 0),
    ],
)
def test_closing_lines_are_counted(runner: ModuleType, line: str, passed: int, failed: int) -> None:
    assert runner._closing(["before", line, "after"])[1:] == (passed, failed)


def _stage(runner: ModuleType, *programs: str) -> tuple[int, int, str]:
    commands = [[sys.executable, "-c", program] for program in programs]
    outcome = runner._run(runner.Stage("a stage", commands), 0)
    return outcome.code, outcome.passed, outcome.closing


def test_a_stage_that_passes(runner: ModuleType) -> None:
    assert _stage(runner, "print('3 passed in 0.1s')") == (0, 3, "3 passed in 0.1s")


def test_a_stage_without_a_test_fails(runner: ModuleType) -> None:
    assert _stage(runner, "print('no tests ran in 0.1s')") == (1, 0, "no test ran")


def test_a_stage_ends_with_the_first_command_that_fails(runner: ModuleType) -> None:
    assert _stage(runner, "raise SystemExit(4)", "print('3 passed in 0.1s')")[:2] == (4, 0)


def test_a_stage_that_hangs_is_ended(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STAGE_SECONDS", 0.5)
    assert _stage(runner, "import signal; print('1 passed in 0.1s', flush=True); signal.pause()")[0] == -9


def test_every_tier_has_stages(runner: ModuleType) -> None:
    assert [stage.name for stage in runner.stages("fast", 2)] == ["C++", "Python"]
    names = [stage.name for stage in runner.stages("full", 2)]
    for wanted in ("C++", "C++, ASan and UBSan", "C++, TSan", "Python", "documentation", "hosts, end to end"):
        assert wanted in names
