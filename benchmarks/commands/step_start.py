"""``python -m benchmarks step-start``: what Entrepot adds to the start of a Dagster step, in fresh interpreters.

A step's process imports Dagster and the code location, and creates the resources. Each round starts one interpreter
that does so with Dagster's ``FilesystemIOManager``, and one with ``EntrepotIOManager``; the median of the rounds'
differences is what a start grows by. The first rounds, which fill the caches of the disk and of bytecode, do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

UNCOUNTED = 2
GOAL_SECONDS = 0.1
_PROGRAM = """
import time
begin = time.perf_counter()
from dagster import Definitions, FilesystemIOManager, asset
@asset
def numbers():
    return [1]
{create}
Definitions(assets=[numbers], resources={{"io_manager": manager}}).resolve_asset_graph()
print(time.perf_counter() - begin)
"""
PROGRAMS = {
    "FilesystemIOManager": _PROGRAM.format(create="manager = FilesystemIOManager()"),
    "EntrepotIOManager": _PROGRAM.format(
        create="from entrepot_dagster import EntrepotIOManager\nmanager = EntrepotIOManager()"
    ),
}


def add_step_start(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``step-start``."""
    parser = commands.add_parser("step-start", help="what Entrepot adds to the start of a Dagster step")
    parser.add_argument("--rounds", type=int, default=15, help="default 15")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for number in range(UNCOUNTED + arguments.rounds):
        for name, program in PROGRAMS.items():
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            if number >= UNCOUNTED:
                seconds[name].append(float(done.stdout))
    plain, ours = seconds.values()
    added = statistics.median(mine - other for mine, other in zip(ours, plain, strict=True))
    print(
        grid(
            ["start of a step", "median"], [[name, time_text(statistics.median(all))] for name, all in seconds.items()]
        )
    )
    reached = "yes" if added <= GOAL_SECONDS else "no"
    print()
    print(
        grid(
            ["goal", "", "measured", "reached"],
            [["added", f"at most {time_text(GOAL_SECONDS)}", time_text(added), reached]],
        )
    )
    if arguments.json:
        result = {"machine": machine(), "commit": commit(), "step-start": {"added": added, "seconds": seconds}}
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0
