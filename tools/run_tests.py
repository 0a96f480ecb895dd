"""Runs the tests in stages and prints a summary.

Every stage runs, even if earlier ones fail; the exit code is 0 if all passed. The summary is short and comes last, so
that a tail of the log is enough: the slowest tests, the closing line of each stage, the names of failed tests.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from test_output import RunnerResult, read

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
PYTHON = str(ROOT / ".venv/bin/python")
PYTHON_PANDAS2 = str(ROOT / ".venv-pandas2/bin/python")
PACKAGES = ["core/python", "io_managers", "cluster", "airflow_provider", "dagster_integration", "kedro_dataset"]
PACKAGES += ["dataframes", "observability", "operator"]
CODEC_TESTS = "tests/io_managers/codecs"
TWO_ENVIRONMENTS = "tests/environments/test_pair.py"
CONTROL_PLANE = [PYTHON, "tests/kubecp/kubecp_build.py"]
# No stage takes two thirds of this, on a loaded machine either. A hang that escapes every test's own timeout must not
# hang the whole run.
STAGE_SECONDS = 2700.0
PYTHON_PROCESSES = "3"
ORCHESTRATOR_PROCESSES = "2"
# Started first, so that no process is left with one of them when the others are done.
LONGEST_FILES = (
    "tests/failover/test_airflow.py",
    "tests/failover/test_airflow_executors.py",
    "tests/failover/test_dagster.py",
    "tests/airflow_provider/test_recovery_runs.py",
    "tests/airflow_provider/test_dag_runs.py",
    "tests/orchestrator_pods/test_airflow_pods.py",
    "tests/dagster_integration/test_killed_and_stopped.py",
    "tests/dagster_integration/test_backfills.py",
    "tests/examples/test_demo.py",
)
SLOWEST = 10
NAMED_FAILURES = 60  # keeps the summary readable; the log has them all


@dataclass
class Stage:
    """One run of a test runner.

    Attributes:
        name: for the summary.
        commands: run in order; the first failure ends the stage.
        variables: added to the environment.
        builds: the preset that its first command builds; built before, as far as possible, beside the earlier stages.
        beside: runs beside the stages after it; its output follows theirs.
    """

    name: str
    commands: list[list[str]]
    variables: dict[str, str] = field(default_factory=dict[str, str])
    builds: str = ""
    beside: bool = False


@dataclass
class Outcome:
    """The result of a stage.

    Attributes:
        name: of the stage.
        code: exit code; 0: all tests passed.
        seconds: duration.
        result: of its output.
        busy: share of the machine's CPU time that was used meanwhile, by any process, from 0 to 1.
    """

    name: str
    code: int
    seconds: float
    result: RunnerResult
    busy: float = 0.0


def _pytest(python: str, *arguments: str) -> list[str]:
    return [python, "-m", "pytest", "--color=no", f"--durations={SLOWEST}", *arguments]


def files_with(pattern: str) -> list[str]:
    """Test files in which a regular expression occurs; each process of a stage would collect thousands of other tests
    otherwise, which takes 20 s of CPU time.
    """
    files = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text(encoding="utf-8")))


def end_to_end_files() -> list[str]:
    """Files with end-to-end tests of orchestrators, longest first."""
    places = {name: place for place, name in enumerate(LONGEST_FILES)}
    return sorted(files_with(r"mark\.e2e"), key=lambda name: (places.get(name, len(places)), name))


def cluster_places() -> list[str]:
    """Files that ask for the control plane, and folders in which a conftest.py does so for their fixtures."""
    pattern = r"\bcontrol_plane\b|\bentrepot_cluster:"
    fixtures = [file for file in (ROOT / "tests").glob("*/**/conftest.py") if re.search(pattern, file.read_text())]
    folders = sorted(str(file.parent.relative_to(ROOT)) for file in fixtures)
    files = [name for name in files_with(pattern) if not any(name.startswith(f"{folder}/") for folder in folders)]
    return folders + files


def pandas_files() -> list[str]:
    """The files of codec tests in which pandas occurs. The others would only repeat what the first set of versions
    has shown: all their other libraries are the same in both.
    """
    files = sorted((ROOT / CODEC_TESTS).glob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if "pandas" in file.read_text(encoding="utf-8")]


def stages(tier: str, jobs: int, begin_within: float = math.inf) -> list[Stage]:
    """The stages of a tier: ``fast``, ``full``, ``exhaustive`` or ``pandas2``.

    Exhaustive Python tests that have not begun ``begin_within`` seconds after the first are skipped, and listed.
    """
    pandas2 = [PYTHON_PANDAS2, "-n", "2", "-m", "not exhaustive", TWO_ENVIRONMENTS]
    if tier == "pandas2":
        return [Stage("codecs on pandas 2", [_pytest(*pandas2, CODEC_TESTS)])]
    if tier == "fast":
        return [
            Stage("C++", [["ctest", "--preset", "dev", "-LE", "slow"]]),
            Stage("Python", [_pytest(PYTHON, "-n", "2", "-m", "not slow and not e2e and not exhaustive", "tests")]),
        ]
    if tier == "exhaustive":
        # One process: these compile and measure.
        exhaustive = _pytest(PYTHON, "-m", "exhaustive", "--timeout", "900", "-rs", *files_with(r"mark\.exhaustive"))
        if begin_within < math.inf:
            exhaustive += ["--begin-within", f"{begin_within:g}"]
        return [Stage("C++", [["ctest", "--preset", "dev"]]), Stage("exhaustive", [exhaustive])]
    # All other C++ tests run with sanitizers, which find what a run without them finds.
    unsanitized = ["bash", "tools/build.sh", "dev", "unsanitized_tests", str(jobs)]
    planned = [Stage("C++, unsanitized", [unsanitized, ["ctest", "--preset", "dev", "-L", "unsanitized"]])]
    asan, tsan = (
        Stage(name, [_build(preset, jobs), ["ctest", "--preset", preset]], builds=preset)
        for preset, name in (("asan", "C++, ASan and UBSan"), ("tsan", "C++, TSan"))
    )
    # Before the Python tests, whose processes would otherwise all compile the same libraries to .pyc files on a new
    # machine. Modules named torch_* import PyTorch, which is not in the lock file.
    doctests = [
        "--doctest-modules",
        "--doctest-glob=*.md",
        "--ignore-glob=*/torch_*.py",
        *PACKAGES,
        "README.md",
        "docs",
    ]
    planned.append(Stage("documentation", [_pytest(PYTHON, *doctests)]))
    # Many of these wait for a store or a clock. Each process begins with a third of them, so that the fixtures of most
    # modules are made once, and takes over tests of the others when it is done.
    shared_out = ["-n", PYTHON_PROCESSES, "--dist", "worksteal"]
    python = _pytest(PYTHON, *shared_out, "-m", "not e2e and not exhaustive", "tests")
    planned.append(Stage("Python", [python]))
    # These mostly wait for schedulers. tests/conftest.py defines what stays together.
    together = ["-n", ORCHESTRATOR_PROCESSES, "--dist", "loadscope", "--no-loadscope-reorder"]
    orchestrators = _pytest(
        PYTHON, *together, "-m", "e2e and not cluster and not exhaustive", "--timeout", "900", *end_to_end_files()
    )
    planned.append(Stage("orchestrators, end to end", [orchestrators]))
    if (ROOT / CODEC_TESTS).is_dir():
        planned.append(Stage("codecs on pandas 2", [_pytest(*pandas2, *pandas_files())]))
    # One process, so that there is one control plane, for which it waits half of the time: hence beside the builds that
    # follow. Late, because what it is built from compiles meanwhile.
    cluster = _pytest(PYTHON, "-m", "cluster and not exhaustive", "--timeout", "300", *cluster_places())
    planned.append(Stage("Kubernetes", [CONTROL_PLANE, cluster], beside=True))
    # Late, because the builds with sanitizers proceed while the earlier stages wait for stores and schedulers.
    planned.append(asan)
    # The longest build with the fewest findings: the one that a slow machine may omit.
    planned.append(tsan)
    return planned


def _build(preset: str, jobs: int) -> list[str]:
    return ["bash", "tools/build.sh", preset, "all", str(jobs)]


def builds_ahead(planned: list[Stage]) -> list[str]:
    """A command that builds the presets of these stages one after the other, with one process; empty if there are none.

    It goes on after a failed build: the stage reports that.
    """
    commands = [" ".join(_build(stage.builds, 1)) for stage in planned if stage.builds]
    return ["bash", "-c", "; ".join(commands)] if commands else []


@contextmanager
def running_in_background(command: list[str], log: str) -> Iterator[Callable[[], None]]:
    """Context in which a command runs at low priority beside the tests; yields a function that ends it early."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / log).open("wb") as out:
        process = subprocess.Popen(
            ["nice", "-n", "19", *command], cwd=ROOT, stdout=out, stderr=out, start_new_session=True
        )
    # Where autogroup scheduling is on, niceness only works within one session.
    with suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("19", encoding="ascii")

    def end() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()

    try:
        yield end
    finally:
        end()


def run(stage: Stage, number: int, echo: Callable[[str], None] | None = None) -> Outcome:
    """Run a stage; its output is passed on, line by line, and written to the log of that number.

    Args:
        stage: the stage.
        number: of its log.
        echo: takes the lines; None: they are printed.
    """
    echo = echo or _print_line
    echo(f"\n== {stage.name}\n")
    begin, cpu_begin = time.monotonic(), _machine_cpu_seconds()
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
            _running.add(process.pid)
            watchdog = threading.Timer(STAGE_SECONDS, _end, [process.pid])
            watchdog.daemon = True
            watchdog.start()
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    echo(line)
                    log.write(line)
                    lines.append(line.rstrip())
                code = process.wait()
            except KeyboardInterrupt:  # a separate session does not receive the terminal's signals
                os.killpg(process.pid, signal.SIGTERM)
                raise
            finally:
                watchdog.cancel()
                _running.discard(process.pid)
            if code != 0:
                break
    result = read(lines)
    if code == 0 and result.passed == 0:
        result.closing = result.closing or "no test ran"
        code = 1
    seconds = time.monotonic() - begin
    busy = (_machine_cpu_seconds() - cpu_begin) / (seconds * (os.cpu_count() or 1))
    return Outcome(stage.name, code, seconds, result, busy)


def _print_line(line: str) -> None:
    print(line, end="", flush=True)


def _machine_cpu_seconds() -> float:
    """CPU time that this machine's processes have used since it started; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    ticks = [int(field) for field in fields]
    # The fourth and fifth are idle time; the ninth and tenth, guests' time, are contained in the first two.
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


# Process groups of the running stages. Each is added and removed by the thread that runs the stage, by one operation.
_running: set[int] = set()


def _end_running() -> None:
    """End the stages that still run: none, except after an interruption."""
    for group in list(_running):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)


class StageBeside:
    """A stage that a thread runs while the caller runs others."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._lines: list[str] = []  # written by the thread, read after its end
        self._outcome: Outcome | None = None  # likewise
        self._thread = threading.Thread(target=self._run, args=(stage, number), daemon=True)
        self._thread.start()

    def _run(self, stage: Stage, number: int) -> None:
        self._outcome = run(stage, number, self._lines.append)

    def outcome(self) -> Outcome:
        """Wait for the end, and print the output."""
        self._thread.join()
        print("".join(self._lines), end="", flush=True)
        assert self._outcome is not None
        return self._outcome


def _end(pid: int) -> None:
    print(f"run_tests: killing the stage, which took more than {STAGE_SECONDS} s", flush=True)
    os.killpg(pid, signal.SIGKILL)


def summary(outcomes: list[Outcome]) -> list[str]:
    """The last lines of a run: the slowest tests, one line for each stage, the names of failed tests, the counts."""
    times = [(taken, name, outcome.name) for outcome in outcomes for name, taken in outcome.result.seconds.items()]
    times.sort(reverse=True)
    lines = ["", f"== the {min(SLOWEST, len(times))} slowest tests"]
    lines += [f"{taken:7.1f} s  {name}  ({stage})" for taken, name, stage in times[:SLOWEST]]
    lines += ["", "== summary"]
    for outcome in outcomes:
        verdict = "ok" if outcome.code == 0 else f"FAILED ({outcome.code})"
        duration = f"{outcome.seconds:7.1f} s {outcome.busy:4.0%} busy"
        lines.append(f"{outcome.name:24} {verdict:12} {duration}  {outcome.result.closing}")
    names = [f"FAILED {name}  ({outcome.name})" for outcome in outcomes for name in outcome.result.failures]
    lines += names[:NAMED_FAILURES]
    if len(names) > NAMED_FAILURES:
        lines.append(f"and {len(names) - NAMED_FAILURES} more: see {LOGS}")
    bad = sum(1 for outcome in outcomes if outcome.code != 0)
    # A stage that failed before its runner could count still counts as a failure.
    failed = max(sum(outcome.result.failed for outcome in outcomes), bad)
    passed = sum(outcome.result.passed for outcome in outcomes)
    lines.append(f"{passed} passed, {failed} failed")
    return lines


def _nothing() -> None:
    pass


def main() -> int:
    """Run the tier named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tier", choices=["fast", "full", "exhaustive", "pandas2"])
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 2, help="parallel build jobs; default: number of CPUs"
    )
    parser.add_argument(
        "--last-begins-within",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="skip the last stage, and say so in the summary, if the stages before it took longer; default: never",
    )
    parser.add_argument(
        "--begin-within",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="exhaustive: skip, and list, Python tests that have not begun after so long; default: never",
    )
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    planned = stages(arguments.tier, arguments.jobs, arguments.begin_within)
    omitted: list[str] = []
    besides: list[StageBeside] = []
    begin = time.monotonic()
    with ExitStack() as stack:
        stack.callback(_end_running)
        if arguments.tier == "full":
            stack.enter_context(running_in_background([*CONTROL_PLANE, "--jobs", "1"], "kubecp.log"))
        end_builds = _nothing
        for number, stage in enumerate(planned):
            taken = time.monotonic() - begin
            if number == 0 or stage.builds:
                end_builds()  # the stage builds the rest of its preset itself
                if ahead := builds_ahead(planned[number + 1 :]):
                    end_builds = stack.enter_context(running_in_background(ahead, "background.log"))
            if stage is planned[-1] and taken > arguments.last_begins_within:
                omitted.append(f"SKIPPED {stage.name}: the stages before it took {taken:.0f} s")
                continue
            if stage.beside:
                besides.append(StageBeside(stage, number))
            else:
                outcomes.append(run(stage, number))
        outcomes += [stage.outcome() for stage in besides]
    lines = summary(outcomes)
    print("\n".join([*lines[:-1], *omitted, f"{lines[-1]} in {time.monotonic() - begin:.0f} s"]), flush=True)
    return 1 if any(outcome.code != 0 for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
