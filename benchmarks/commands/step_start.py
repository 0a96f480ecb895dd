"""``python -m benchmarks step-start``: what Entrepot adds to the start of a Dagster step, in fresh interpreters.

A step's process imports Dagster and the code location, and creates the resources. Each round starts one interpreter
that does so with Dagster's ``FilesystemIOManager``, and one with ``EntrepotIOManager``, whose store runs already. Both
then materialize an asset and read it: *with a first value* has what is imported and connected to only for that.

What a start grows by is the mean of the rounds' differences. Not the median, because a full collection of Python's
garbage (50 ms) comes each time the heap has grown by a quarter: whether it falls into a start depends on what else the
code location has, so the rounds' locations differ in that. The first rounds, which fill the caches of the disk and of
bytecode, do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

UNCOUNTED = 2
GOAL_SECONDS = 0.1
OBJECTS_PER_ROUND = 2000  # that the next round's code location has more; a start without Entrepot makes 112,000
_PROGRAM = """
import sys, time
begin = time.perf_counter()
from dagster import Definitions, FilesystemIOManager, asset, materialize
others = [[] for _ in range(int(sys.argv[1]))]
@asset
def numbers():
    return [1]
{create}
Definitions(assets=[numbers], resources={{"io_manager": manager}}).resolve_asset_graph()
print(time.perf_counter() - begin)
run = materialize([numbers], resources={{"io_manager": manager}})
assert run.output_for_node("numbers") == [1]
print(time.perf_counter() - begin)
"""
PROGRAMS = {
    "FilesystemIOManager": _PROGRAM.format(create="manager = FilesystemIOManager()"),
    "EntrepotIOManager": _PROGRAM.format(
        create="from entrepot_dagster import EntrepotIOManager\nmanager = EntrepotIOManager()"
    ),
}
FIGURES = ("start of a step", "with a first value")


def add_step_start(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``step-start``."""
    parser = commands.add_parser("step-start", help="what Entrepot adds to the start of a Dagster step")
    parser.add_argument("--rounds", type=int, default=15, help="default 15")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


@contextmanager
def _store() -> Iterator[dict[str, str]]:
    """Context with a running store, and the environment of processes that use it."""
    with tempfile.TemporaryDirectory(prefix="start-") as folder:  # a short path: a socket's is limited to 107 bytes
        address = f"unix://{folder}/store.sock"
        command = [sys.executable, "-m", "entrepot"]
        subprocess.run([*command, "start", "--address", address], check=True, capture_output=True)
        try:
            yield {**os.environ, "ENTREPOT_ADDRESS": address}
        finally:
            subprocess.run([*command, "stop", "--address", address], check=True, capture_output=True)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in PROGRAMS}
    with _store() as environment:
        for number in range(UNCOUNTED + arguments.rounds):
            for name, program in PROGRAMS.items():
                command = [sys.executable, "-c", program, str(number * OBJECTS_PER_ROUND)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                if number >= UNCOUNTED:
                    seconds[name].append([float(figure) for figure in done.stdout.split()])
    by_figure = {name: list(zip(*rounds, strict=True)) for name, rounds in seconds.items()}
    rows = [
        [name, *(time_text(statistics.median(figure)) for figure in figures)] for name, figures in by_figure.items()
    ]
    print(grid(["median", *FIGURES], rows))
    plain, ours = by_figure.values()
    added = {
        name: statistics.mean(mine - other for mine, other in zip(of_ours, of_plain, strict=True))
        for name, of_plain, of_ours in zip(FIGURES, plain, ours, strict=True)
    }
    goals = [
        [name, f"at most {time_text(GOAL_SECONDS)}", time_text(more), "yes" if more <= GOAL_SECONDS else "no"]
        for name, more in added.items()
    ]
    print()
    print(grid(["added to", "goal", "measured", "reached"], goals))
    if arguments.json:
        result = {"machine": machine(), "commit": commit(), "step-start": {"added": added, "seconds": by_figure}}
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0
