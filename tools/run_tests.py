"""Runs the tests in stages and sums them up.

Every stage runs, whatever the ones before it said; the exit code tells whether all passed. The last lines repeat each
runner's own closing line.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
PYTHON = str(ROOT / ".venv/bin/python")
PYTHON_PANDAS2 = str(ROOT / ".venv-pandas2/bin/python")
PACKAGES = ["core/python", "io_managers", "airflow_provider", "dagster_integration", "kedro_dataset", "operator"]
CODEC_TESTS = "tests/io_managers/codecs"
# No stage takes a third of it; a hang that no test's own limit ends must not hang the run.
STAGE_SECONDS = 1800.0
CTEST_TOTAL = re.compile(r"(\d+) tests? failed out of (\d+)")
PYTEST_CLOSING = re.compile(r"^=* ?(?P<counts>\d+ \w+(?:, \d+ \w+)*) in [0-9.]+s")


@dataclass
class Stage:
    """One runner's run.

    Attributes:
        name: what the summary calls it.
        commands: run in order; the first that fails ends the stage.
        variables: added to the environment.
    """

    name: str
    commands: list[list[str]]
    variables: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Outcome:
    """What a stage came to; ``closing`` is the runner's own last word."""

    name: str
    code: int
    seconds: float
    closing: str
    passed: int
    failed: int


def _pytest(python: str, *arguments: str) -> list[str]:
    return [python, "-m", "pytest", "--color=no", *arguments]


def stages(tier: str, jobs: int) -> list[Stage]:
    """The stages of a tier: ``fast``, ``full`` or ``pandas2``."""
    pandas2 = Stage("codecs on pandas 2", [_pytest(PYTHON_PANDAS2, "-n", "2", CODEC_TESTS)])
    if tier == "pandas2":
        return [pandas2]
    if tier == "fast":
        return [
            Stage("C++", [["ctest", "--preset", "dev", "-LE", "slow"]]),
            Stage("Python", [_pytest(PYTHON, "-n", "2", "-m", "not slow and not e2e", "tests")]),
        ]
    found = [Stage("C++", [["ctest", "--preset", "dev"]])]
    for preset, name in (("asan", "C++, ASan and UBSan"), ("tsan", "C++, TSan")):
        build = ["bash", "tools/build.sh", preset, "all", str(jobs)]
        found.append(Stage(name, [build, ["ctest", "--preset", preset]]))
    found.append(Stage("Python", [_pytest(PYTHON, "-n", "2", "-m", "not e2e", "tests")]))
    doctests = ["--doctest-modules", "--doctest-glob=*.md", *PACKAGES, "README.md", "docs"]
    found.append(Stage("documentation", [_pytest(PYTHON, *doctests)]))
    found.append(Stage("hosts, end to end", [_pytest(PYTHON, "-m", "e2e", "--timeout", "900", "tests")]))
    if (ROOT / CODEC_TESTS).is_dir():
        found.append(pandas2)
    return found


def _run(stage: Stage, number: int) -> Outcome:
    print(f"\n== {stage.name}", flush=True)
    begin = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    code = 0
    with (LOGS / f"{number}.log").open("w", encoding="utf-8") as log:
        for command in stage.commands:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | stage.variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            watchdog = threading.Timer(STAGE_SECONDS, _end, [process.pid])
            watchdog.daemon = True
            watchdog.start()
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    print(line, end="", flush=True)
                    log.write(line)
                    lines.append(line.rstrip())
                code = process.wait()
            except KeyboardInterrupt:  # a session of its own does not hear the terminal
                os.killpg(process.pid, signal.SIGTERM)
                raise
            finally:
                watchdog.cancel()
            if code != 0:
                break
    closing, passed, failed = _closing(lines)
    if code == 0 and passed == 0:
        closing = closing or "no test ran"
        code = 1
    return Outcome(stage.name, code, time.monotonic() - begin, closing, passed, failed)


def _end(pid: int) -> None:
    print(f"run_tests: the stage took more than {STAGE_SECONDS} s and is ended", flush=True)
    os.killpg(pid, signal.SIGKILL)


def _closing(lines: list[str]) -> tuple[str, int, int]:
    """The closing line of the runner, and what passed and failed by it."""
    for line in reversed(lines):
        total = CTEST_TOTAL.search(line)
        if total:
            failed, count = int(total[1]), int(total[2])
            return line, count - failed, failed
        match = PYTEST_CLOSING.match(line)
        if match:
            counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", match["counts"])}
            failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
            return line, counts.get("passed", 0), failed
    return "", 0, 0


def main() -> int:
    """Runs the tier named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tier", choices=["fast", "full", "pandas2"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="for builds; default: the machine's")
    arguments = parser.parse_args()
    outcomes = [_run(stage, number) for number, stage in enumerate(stages(arguments.tier, arguments.jobs))]
    print("\n== summary")
    for outcome in outcomes:
        verdict = "ok" if outcome.code == 0 else f"FAILED ({outcome.code})"
        print(f"{outcome.name:24} {verdict:12} {outcome.seconds:7.1f} s  {outcome.closing}")
    bad = sum(1 for outcome in outcomes if outcome.code != 0)
    # A stage that failed before its runner could count still counts as a failure.
    failed = max(sum(outcome.failed for outcome in outcomes), bad)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
