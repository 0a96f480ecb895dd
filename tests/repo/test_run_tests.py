"""The staged runner distinguishes a run without tests from one that passed, and lists failures where they are seen:
last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import ROOT, load_tool


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/run_tests.py as a module that writes its logs to the test's directory."""
    module = load_tool("run_tests", monkeypatch)
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
    result = runner.read(["before", line, "after"])
    assert (result.passed, result.failed) == (passed, failed)


CTEST_OUTPUT = """\
Test project /somewhere
      Start  1: shm_pins_test
 1/3 Test  #1: shm_pins_test ....................   Passed    0.31 sec
 2/3 Test  #2: daemon_death_test ................***Failed   12.50 sec
[ RUN      ] Death.OfAClient
[       OK ] Death.OfAClient (12 ms)
[  FAILED  ] Death.OfTheDaemon (4012 ms)
[  FAILED  ] All/Death.OfEach/2, where GetParam() = 2 (12 ms)
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Death.OfTheDaemon
 3/3 Test  #3: store_model_test ............Subprocess aborted***Exception: 120.01 sec

33% tests passed, 2 tests failed out of 3
"""

PYTEST_OUTPUT = """\
ERROR    root:test_x.py:12 a captured message of a test
============================= slowest 10 durations =============================
83.12s setup    tests/repo/test_wheel.py::test_wheel
0.50s call     tests/repo/test_wheel.py::test_wheel
2.25s call     tests/core/test_handshake.py::test_door[a name with blanks]
=========================== short test summary info ============================
SKIPPED [1] tests/core/test_x.py:7: not root
FAILED tests/core/test_handshake.py::test_door[a name with blanks] - AssertionError: no - not so
ERROR tests/core/test_put.py::test_put
ERROR tests/core/test_broken.py
==== 1 failed, 7 passed, 1 skipped, 2 errors in 90.11s (0:01:30) ====
"""


def test_failed_tests_of_ctest_are_named(runner: ModuleType) -> None:
    result = runner.read(CTEST_OUTPUT.splitlines())
    assert result.failures == [
        "daemon_death_test",
        "daemon_death_test: Death.OfTheDaemon",
        "daemon_death_test: All/Death.OfEach/2",
        "store_model_test",
    ]
    assert result.seconds == {"shm_pins_test": 0.31, "daemon_death_test": 12.5, "store_model_test": 120.01}
    assert (result.passed, result.failed) == (1, 2)


def test_failed_tests_of_pytest_are_named(runner: ModuleType) -> None:
    result = runner.read(PYTEST_OUTPUT.splitlines())
    assert result.failures == [
        "tests/core/test_handshake.py::test_door[a name with blanks]",
        "tests/core/test_put.py::test_put",
        "tests/core/test_broken.py",
    ]
    assert result.seconds["tests/repo/test_wheel.py::test_wheel"] == pytest.approx(83.62)
    assert (result.passed, result.failed) == (7, 3)


MODULE_CODE = """
import os
import pytest

@pytest.mark.parametrize("number", range(40))
def test_it(number):
    with open({record_file!r}, "a") as file:
        file.write("{name} " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def _workers(tmp_path: Path, *names: str) -> dict[str, set[str]]:
    """Run modules of 40 tests each by two processes, and return which processes ran each module."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    for name in ("kubecp", "databases"):
        (tmp_path / name).symlink_to(ROOT / "tests" / name)
    record_file = tmp_path / "record"
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(MODULE_CODE.format(record_file=str(record_file), name=name))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--import-mode=importlib", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line.split() for line in record_file.read_text().splitlines()]
    assert sorted(name for name, _ in lines) == sorted(40 * names)
    return {name: {worker for of, worker in lines if of == name} for name in names}


def test_a_module_of_orchestrators_is_run_by_one_process(tmp_path: Path) -> None:
    """Such a module's fixtures are created once."""
    workers = _workers(tmp_path, "failover/test_airflow.py", "failover/test_dagster.py")
    assert [len(of_module) for of_module in workers.values()] == [1, 1]


def test_a_module_without_shared_fixtures_is_run_by_all_processes(tmp_path: Path) -> None:
    """A run of its own: beside another module, one slow process could leave all its tests to the other."""
    assert _workers(tmp_path, "failover/test_kedro.py") == {"failover/test_kedro.py": {"gw0", "gw1"}}


def test_the_orchestrator_stage_contains_all_their_tests(runner: ModuleType) -> None:
    files = runner.end_to_end_files()
    assert files[: len(runner.LONGEST_FILES)] == list(runner.LONGEST_FILES)
    assert {"tests/failover/test_airflow.py", "tests/kedro_dataset/test_project.py"} <= set(files)
    (stage,) = (candidate for candidate in runner.stages("full", 2) if candidate.name == "orchestrators, end to end")
    assert stage.commands[0][-len(files) :] == files
    assert "-n" in stage.commands[0]


def test_stages_of_a_few_hundred_tests_collect_the_files_that_have_them(runner: ModuleType) -> None:
    places, files = runner.cluster_places(), runner.files_with(r"mark\.exhaustive")
    assert {"tests/operator/test_rbac.py", "tests/operator/directory", "tests/cluster/directory"} <= set(places)
    assert "tests/repo/test_wheel.py" in files
    stage = next(stage for stage in runner.stages("full", 2) if stage.name == "Kubernetes")
    assert stage.commands[-1][-len(places) :] == places
    assert runner.stages("exhaustive", 2)[-1].commands[0][-len(files) :] == files


@pytest.mark.exhaustive  # collects all tests, twice
@pytest.mark.timeout(600)
@pytest.mark.parametrize("marker", ["cluster", "exhaustive"])
def test_no_other_file_has_such_a_test(runner: ModuleType, marker: str) -> None:
    def collected(*places: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", marker]
        output = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, timeout=500).stdout
        return {line for line in output.splitlines() if "::" in line}

    places = runner.cluster_places() if marker == "cluster" else runner.files_with(r"mark\.exhaustive")
    everything = collected("tests")
    assert len(everything) > 100
    assert collected(*places) == everything


def test_the_summary_ends_with_names_and_counts(runner: ModuleType) -> None:
    outcomes = [
        runner.Outcome("C++", 8, 133.0, runner.read(CTEST_OUTPUT.splitlines())),
        runner.Outcome("Python", 1, 91.0, runner.read(PYTEST_OUTPUT.splitlines())),
        runner.Outcome("broken", 2, 1.0, runner.read(["ninja: error"])),
    ]
    lines = runner.summary(outcomes)
    assert lines[-1] == "8 passed, 5 failed"
    assert lines[-2] == "FAILED tests/core/test_broken.py  (Python)"
    assert "FAILED daemon_death_test: Death.OfTheDaemon  (C++)" in lines
    slowest = lines.index("== the 5 slowest tests")
    assert lines[slowest + 1].split() == ["120.0", "s", "store_model_test", "(C++)"]
    assert len(lines) < 40


def _stage(runner: ModuleType, *programs: str) -> tuple[int, int, str]:
    commands = [[sys.executable, "-c", program] for program in programs]
    outcome = runner.run(runner.Stage("a stage", commands), 0)
    return outcome.code, outcome.result.passed, outcome.result.closing


def test_a_stage_that_passes(runner: ModuleType) -> None:
    assert _stage(runner, "print('3 passed in 0.1s')") == (0, 3, "3 passed in 0.1s")


def test_a_stage_without_a_test_fails(runner: ModuleType) -> None:
    assert _stage(runner, "print('no tests ran in 0.1s')") == (1, 0, "no test ran")


def test_a_stage_ends_with_the_first_command_that_fails(runner: ModuleType) -> None:
    assert _stage(runner, "raise SystemExit(4)", "print('3 passed in 0.1s')")[:2] == (4, 0)


def test_a_stage_that_hangs_is_ended(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STAGE_SECONDS", 0.5)
    assert _stage(runner, "import signal; print('1 passed in 0.1s', flush=True); signal.pause()")[0] == -9


BACKGROUND_CODE = (
    "import os, pathlib, signal; pathlib.Path({noted!r}).write_text(f'{{os.getpid()}}\\n'); signal.pause()"
)
CHECK_RUNNING_CODE = """
import os, pathlib, time
noted, end = pathlib.Path({noted!r}), time.monotonic() + 60
while not (noted.exists() and noted.read_text().endswith("\\n")) and time.monotonic() < end:
    time.sleep(0.01)
os.kill(int(noted.read_text()), 0)
print("1 passed in 0.1s")
"""
CHECK_ENDED_CODE = """
import os, pathlib
try:
    os.kill(int(pathlib.Path({noted!r}).read_text()), 0)
except ProcessLookupError:
    print("1 passed in 0.1s")
"""


def test_builds_go_on_beside_the_stages_before_theirs(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, check_running, check_ended = (
        [sys.executable, "-c", text.format(noted=str(tmp_path / "noted"))]
        for text in (BACKGROUND_CODE, CHECK_RUNNING_CODE, CHECK_ENDED_CODE)
    )
    plan = [
        runner.Stage("beside the builds", [check_running]),
        runner.Stage("still beside them", [check_running]),
        runner.Stage("of what they build", [check_ended], builds="one"),
    ]
    monkeypatch.setattr(runner, "builds_ahead", lambda planned: builds if any(s.builds for s in planned) else [])
    monkeypatch.setattr(runner, "stages", lambda *arguments: plan)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "fast"])
    assert runner.main() == 0


def test_a_stage_runs_beside_the_stages_after_it_and_is_printed_after_them(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    meeting = tmp_path / "meeting"
    os.mkfifo(meeting)  # to open it, one has to wait for the other
    codes = [f"open({str(meeting)!r}, {mode!r}).close(); print('1 passed in 0.1s')" for mode in ("w", "r")]
    commands = [[sys.executable, "-c", code] for code in codes]
    monkeypatch.setattr(runner, "STAGE_SECONDS", 60.0)
    plan = [runner.Stage("beside", [commands[0]], beside=True), runner.Stage("next", [commands[1]])]
    monkeypatch.setattr(runner, "stages", lambda *arguments: plan)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "fast"])
    assert runner.main() == 0
    out = capfd.readouterr().out
    assert out.index("== next\n1 passed") < out.index("== beside\n1 passed") < out.index("== summary")


def test_what_later_stages_need_is_built_in_their_order(runner: ModuleType) -> None:
    planned = [runner.Stage("a", []), runner.Stage("b", [], builds="first"), runner.Stage("c", [], builds="second")]
    assert runner.builds_ahead(planned) == [
        "bash",
        "-c",
        "bash tools/build.sh first all 1; bash tools/build.sh second all 1",
    ]
    assert runner.builds_ahead(planned[2:])[-1] == "bash tools/build.sh second all 1"
    assert runner.builds_ahead(planned[3:]) == []


def test_every_c_test_runs_in_some_stage(runner: ModuleType) -> None:
    """`make test` runs only what sanitized builds cannot check without them, `make test-exhaustive` all."""
    unsanitized = runner.stages("full", 2)[0]
    assert unsanitized.commands[-1] == ["ctest", "--preset", "dev", "-L", "unsanitized"]
    assert runner.stages("exhaustive", 2)[0].commands == [["ctest", "--preset", "dev"]]
    built = {stage.builds for stage in runner.stages("full", 2) if stage.builds}
    assert built == {"asan", "tsan"}


def test_every_python_test_belongs_to_one_stage(runner: ModuleType) -> None:
    exhaustive = runner.stages("exhaustive", 2)[-1]
    python = next(stage for stage in runner.stages("full", 2) if stage.name == "Python")
    assert "exhaustive" in exhaustive.commands[0]
    assert "not e2e and not exhaustive" in python.commands[0]
    assert "not slow and not e2e and not exhaustive" in runner.stages("fast", 2)[1].commands[0]
    for name, marks in (("orchestrators, end to end", "e2e and not cluster"), ("Kubernetes", "cluster")):
        stage = next(stage for stage in runner.stages("full", 2) if stage.name == name)
        assert f"{marks} and not exhaustive" in stage.commands[-1]


def test_exhaustive_tests_that_would_begin_too_late_are_skipped_and_listed(runner: ModuleType, tmp_path: Path) -> None:
    command = runner.stages("exhaustive", 2, begin_within=0.0)[-1].commands[0]
    assert command[-2:] == ["--begin-within", "0"]
    assert "--begin-within" not in runner.stages("exhaustive", 2)[-1].commands[0]

    (tmp_path / "conftest.py").write_text(
        (ROOT / "tests/conftest.py")
        .read_text(encoding="utf-8")
        .replace("Path(__file__)", f"Path({str(ROOT / 'tests/conftest.py')!r})"),
        encoding="utf-8",
    )
    (tmp_path / "test_one.py").write_text("def test_one() -> None:\n    pass\n", encoding="utf-8")
    for limit, expected in (("0", "1 skipped"), ("600", "1 passed")):
        pytest_run = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        finished = subprocess.run(
            [*pytest_run, str(tmp_path), "--begin-within", limit], capture_output=True, text=True, timeout=120
        )
        assert expected in finished.stdout, finished.stdout + finished.stderr
        assert ("not begun within 0 s" in finished.stdout) == (limit == "0")


def test_every_tier_has_stages(runner: ModuleType) -> None:
    assert [stage.name for stage in runner.stages("fast", 2)] == ["C++", "Python"]
    names = [stage.name for stage in runner.stages("full", 2)]
    for expected in (
        "C++, unsanitized",
        "C++, ASan and UBSan",
        "C++, TSan",
        "Python",
        "documentation",
        "orchestrators, end to end",
        "Kubernetes",
    ):
        assert expected in names


@pytest.fixture
def repeater(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/repeat_stage.py, using the runner's module."""
    return load_tool("repeat_stage", monkeypatch)


def test_a_stage_is_repeated_and_its_failures_counted(
    runner: ModuleType, repeater: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Every second run fails; busy loops run beside the last two runs only, and none is left."""
    script = tmp_path / "stage.py"
    script.write_text(
        "import pathlib, psutil, sys\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        "loops = [child for child in psutil.Process().parent().children() if 'while True: pass' in child.cmdline()]\n"
        "with seen.open('a') as file: file.write(f'{len(loops)}\\n')\n"
        "failed = len(seen.read_text().split()) % 2 == 0\n"
        "print('FAILED tests/test_a.py::test_b' if failed else '')\n"
        "print('=== 1 failed in 0.1s ===' if failed else '=== 1 passed in 0.1s ===')\n"
        "sys.exit(int(failed))\n"
    )
    stage = runner.Stage("mine", [[sys.executable, str(script)]])
    monkeypatch.setattr(runner, "stages", lambda tier, jobs: [stage])
    assert repeater.main(["--stage", "mine", "--times", "4", "--busy", "2"]) == 1
    loops = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert loops[:2] == [0, 0]
    assert min(loops[2:]) >= 1
    output = capsys.readouterr().out
    assert "FAILED 2 of 4: tests/test_a.py::test_b" in output
    assert "2 of 4 runs passed; 2 runs were beside busy cores" in output
    with pytest.raises(SystemExit, match="unknown stage 'other'"):
        repeater.main(["--stage", "other"])


def test_codecs_without_pandas_run_on_one_version_of_it_only(runner: ModuleType) -> None:
    (whole,) = runner.stages("pandas2", 2)
    (part,) = [stage for stage in runner.stages("full", 2) if stage.name == whole.name]
    assert runner.CODEC_TESTS in whole.commands[0]
    files = [word for word in part.commands[0] if word.startswith(runner.CODEC_TESTS)]
    assert "tests/io_managers/codecs/test_pandas.py" in files
    assert "tests/io_managers/codecs/test_numpy.py" not in files
    assert runner.TWO_ENVIRONMENTS in part.commands[0]
    locks = [(ROOT / name).read_text() for name in ("requirements.lock", "requirements-pandas2.lock")]
    for library in ("numpy", "pyarrow", "polars", "scipy", "array-api-strict", "msgpack"):
        first, second = ({line for line in text.splitlines() if line.startswith(f"{library}==")} for text in locks)
        assert first
        assert first == second, f"the sets have different versions of {library}: let its tests run on both"
