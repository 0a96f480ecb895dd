"""``python -m benchmarks drops``: more values than memory holds, spilled to disk, or dropped and recomputed.

A pipeline in this process: tasks that each make a value, together twice the memory, then tasks that each read one,
which is then deleted. Once with a policy without a memory section, once with ``recompute: auto``; making a value takes
the given time, in addition to writing it to the store. Each run has its own store and a disk to spill to.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from entrepot_policy import Plan

MODES = {"to disk": "never", "dropped where cheaper": "auto"}
RUN = "run-1"


def add_drops(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``drops``."""
    parser = commands.add_parser("drops", help="values that are dropped and recomputed, compared with spilling them")
    parser.add_argument("--memory", type=int, default=512, metavar="MIB", help="of the store (default 512)")
    parser.add_argument("--mib", type=int, default=32, help="of a value (default 32)")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.0, 0.5], help="a value takes (default 0 0.5)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3; medians are printed")
    parser.add_argument("--folder", type=Path, help="on the disk that is spilled to (default: the temporary one)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    print("| a value takes | values go | seconds | written to disk | read from disk | dropped | recomputed |")
    print("|---|---|---|---|---|---|---|")
    figures = []
    for seconds in arguments.seconds:
        rounds: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        for _ in range(arguments.rounds):
            for mode in MODES:
                rounds[mode].append(_round(arguments, seconds, MODES[mode]))
        for mode, taken in rounds.items():
            medians = {what: statistics.median(row[what] for row in taken) for what in taken[0]}
            figures.append({"takes": seconds, "mode": mode, **medians})
            cells = [f"{seconds:g} s", mode, f"{medians['seconds']:.2f}"]
            cells += [f"{medians[what] / (1 << 20):.0f} MiB" for what in ("written", "read")]
            cells += [f"{medians[what]:.0f}" for what in ("drops", "again")]
            print(f"| {' | '.join(cells)} |", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures), encoding="utf-8")
    return 0


def _round(arguments: argparse.Namespace, seconds: float, recompute: str) -> dict[str, float]:
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="entrepot-bench-", dir=arguments.folder))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        os.environ["ENTREPOT_EVENTS"] = str(scratch / "events")
        options = ("--spill-path", str(scratch / "spill"), "--spill-quota", f"{8 * arguments.memory}MiB")
        store = stack.enter_context(own_store(scratch / "store", arguments.memory, *options))
        work = _Pipeline(store.address, arguments.mib << 20, seconds, recompute)
        begin = time.perf_counter()
        count = 2 * arguments.memory // arguments.mib
        for number in range(count):
            work.compute(number)
        for number in range(count):
            work.use(number)
        took = time.perf_counter() - begin
        status = store.status()
        work.close()
    return {
        "seconds": took,
        "written": status["spill"]["written_bytes"],
        "read": status["spill"]["read_bytes"],
        "drops": status["drops"],
        "again": work.computed - count,
    }


class _Pipeline:
    """The tasks, and the orchestrator that reruns one."""

    def __init__(self, address: str, nbytes: int, seconds: float, recompute: str) -> None:
        from entrepot_policy import PolicyRuntime, parse_policy

        text = f"version: 1\nmemory: {{recompute: {recompute}}}\n"
        self._runtime = PolicyRuntime(parse_policy(text, "bench", {}), scope="bench", address=address, rerunner=self)
        self._address = address
        self._nbytes = nbytes
        self._seconds = seconds
        self._references: dict[int, Any] = {}
        self.computed = 0

    def compute(self, number: int) -> None:
        import numpy as np
        from entrepot_io.values import put_value

        session = self._runtime.session(RUN)
        with self._runtime.task(_task(f"make-{number}")) as task:
            time.sleep(self._seconds)
            value = np.full(self._nbytes // 8, number)
            self._references[number] = task.write(session, lambda: put_value(session, f"value-{number}", value))
        self.computed += 1

    def use(self, number: int) -> None:
        from entrepot_io.values import get_value

        reference = self._references[number]
        with self._runtime.task(_task(f"use-{number}")) as task:
            value = task.read(reference, lambda: get_value(reference, address=self._address))
            if int(value[0]) != number or int(value.sum()) != number * len(value):
                raise ValueError(f"value {number} is another one")
        self._runtime.session(RUN).delete(reference.id)

    def rerun(self, plan: Plan, /) -> None:
        for task in plan.tasks:
            self.compute(int(task.name.removeprefix("make-")))

    def close(self) -> None:
        from entrepot_io.connections import close_all

        close_all()


def _task(name: str) -> Any:
    from entrepot_policy import Task

    return Task("kedro", "bench", RUN, name)
