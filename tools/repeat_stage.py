"""Repeats one stage of ``make test``, some runs beside a busy loop on each core, and reports the results.

    python tools/repeat_stage.py --stage "orchestrators, end to end" --times 10 --busy 5

A racy test passes most of the time; ten passes, five of them with its processes short of CPU time, are some evidence
that a test is not racy. The busy runs come last. The exit code is 0 if all runs passed; failed tests are not retried.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import run_tests

FIRST_LOG = 1000  # number of the first run's log, distinct from those of `make test`


@contextmanager
def busy_cores() -> Iterator[None]:
    """Context with a busy loop on each core."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def stage_of(name: str) -> run_tests.Stage:
    """Look up a stage by name.

    Raises:
        SystemExit: there is none; the message lists them.
    """
    stages = {stage.name: stage for tier in ("full", "fast") for stage in run_tests.stages(tier, os.cpu_count() or 2)}
    if name not in stages:
        raise SystemExit(f"repeat_stage: unknown stage {name!r}; stages are {', '.join(map(repr, stages))}")
    return stages[name]


def report(outcomes: list[run_tests.Outcome], busy: int) -> list[str]:
    """One line for each run, and how often each test failed."""
    lines = ["", "== runs"]
    quiet = len(outcomes) - busy
    for number, outcome in enumerate(outcomes):
        verdict = "ok" if outcome.code == 0 else f"FAILED ({outcome.code})"
        load = "busy cores" if number >= quiet else "quiet"
        lines.append(f"{number + 1:3} {load:10} {verdict:12} {outcome.seconds:7.1f} s  {outcome.result.closing}")
    failures = Counter(name for outcome in outcomes for name in outcome.result.failures)
    lines += [f"FAILED {count} of {len(outcomes)}: {name}" for name, count in failures.most_common()]
    green = sum(1 for outcome in outcomes if outcome.code == 0)
    lines.append(f"{green} of {len(outcomes)} runs passed; {busy} runs were beside busy cores")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Repeat the stage; returns 0 if all runs passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--stage", default="orchestrators, end to end", help="name of the stage in the summary of `make test`"
    )
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--busy", type=int, default=5, help="how many of the runs are beside a busy loop on each core")
    options = parser.parse_args(arguments)
    if not 0 <= options.busy <= options.times or options.times < 1:
        parser.error("--times must be at least 1, and --busy from 0 to --times")
    stage = stage_of(options.stage)
    outcomes: list[run_tests.Outcome] = []
    for number in range(options.times):
        if number < options.times - options.busy:
            outcomes.append(run_tests.run(stage, FIRST_LOG + number))
        else:
            with busy_cores():
                outcomes.append(run_tests.run(stage, FIRST_LOG + number))
    print("\n".join(report(outcomes, options.busy)), flush=True)
    return 0 if all(outcome.code == 0 for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
