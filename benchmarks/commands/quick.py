"""Compares two commits: this checkout as it is, and another commit built in a worktree.

Informational: the exit code is 0 whatever the figures.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import median, quantile
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.packages import BuildFailed, Package, other_commit, release
from benchmarks.harness.plan import KIB, MIB, size_name
from benchmarks.harness.processes import WorkerFailed, WorkerProcess
from benchmarks.harness.stage import RunningSystem, SystemsUnderTest
from benchmarks.harness.text import grid, time_text
from benchmarks.systems import ENTREPOT
from benchmarks.systems.base import ARRAY, BYTES, TABLE, Unavailable

OUT = Path("build/bench")
CAPACITY = 1 << 30
LARGE = 64 * MIB
MANY, MANY_BYTES, BATCH = 5000, 1000, 1000
# Two medians that differ by less than the spread of either are indistinguishable.
SAME = "same"


@dataclass
class Side:
    """One of the two.

    Attributes:
        name: for the table.
        samples: seconds, by measurement.
    """

    name: str
    running: RunningSystem
    producer: WorkerProcess
    consumer: WorkerProcess
    samples: dict[str, list[float]]


def add_quick(commands: Any) -> None:
    """Add ``quick`` to the command line."""
    parser = commands.add_parser("quick", help="this checkout beside another commit; judges nothing")
    parser.add_argument("--against", default="HEAD", metavar="REV", help="the other commit; default: HEAD")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each; default: 7")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of quick.json and quick.md")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build, measure and print."""
    try:
        other, number = other_commit(arguments.against)
        packages = {f"commit {number}": other, "this checkout": release(with_native=False)}
        samples = compare(packages, arguments.rounds)
    except (BuildFailed, Unavailable, WorkerFailed) as error:
        print(f"quick: nothing to compare with: {error}")
        return 0
    text = comparison(samples)
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "commit": commit(), "against": number, "samples": samples}
    (arguments.out / "quick.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "quick.md").write_text(text + "\n", encoding="utf-8")
    return 0


def compare(packages: dict[str, Package], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Samples in seconds, by side, then by measurement. The sides alternate, as does the one that begins."""
    with ExitStack() as stack:
        sides = []
        for name, package in packages.items():
            under_test = SystemsUnderTest(package)
            under_test.prepare([ENTREPOT])
            running = RunningSystem(under_test, ENTREPOT, CAPACITY)
            stack.callback(running.stop)
            running.start()
            sides.append(Side(name, running, running.worker(), running.worker(), {}))
        for number in range(rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                kept = side.samples if number else {}  # the first round is a warm-up
                _turn(side, kept)
    return {side.name: side.samples for side in sides}


def _turn(side: Side, samples: dict[str, list[float]]) -> None:
    def note(what: str, ns: list[int], each: float = 1.0) -> None:
        # One sample for each turn: the variation between turns is the noise that a difference must exceed.
        samples.setdefault(what, []).append(median(ns) / 1e9 / each)

    producer, consumer = side.producer, side.consumer
    for nbytes, count in ((KIB, 300), (MIB, 20)):
        producer.call("value", kind=BYTES, nbytes=nbytes)
        note(f"put bytes {size_name(nbytes)}", producer.call("put", count=count, unkept=count)["ns"])
        tokens = producer.call("put", count=20, keep=True)["tokens"]
        note(
            f"get bytes {size_name(nbytes)}", consumer.call("get", tokens=tokens, count=2 * count, nbytes=nbytes)["ns"]
        )
        producer.call("delete")
    put = producer.call("put_many", count=MANY, nbytes=MANY_BYTES, batch=BATCH, most_seconds=10)
    note(f"put one of {MANY:,}, batches", put["ns"], BATCH)
    tokens = producer.call("tokens")["tokens"]
    got = consumer.call("get_many", tokens=tokens, nbytes=MANY_BYTES, batch=BATCH, most_seconds=10)
    note(f"get one of {MANY:,}, batches", got["ns"], BATCH)
    producer.call("delete")
    for kind, text in ((ARRAY, "array"), (TABLE, "table")):
        name = f"{text} {size_name(LARGE)}"
        producer.call("value", kind=kind, nbytes=LARGE)
        put = producer.call("put_large", count=4)
        note(f"put {name}", put["ns"][1:])
        read = consumer.call("read", token=put["tokens"][0], kind=kind, nbytes=LARGE, count=4)
        note(f"get {name}, in hand", read["in_hand"][1:])
        note(f"get {name}, first sum", read["first_sum"][:1])
        producer.call("delete")


def comparison(samples: dict[str, dict[str, list[float]]]) -> str:
    """A table: medians of the turns, their spread, the ratio, and whether the difference is significant."""
    (before, ours), (after, theirs) = samples.items()
    lines = []
    for what, old in ours.items():
        new = sorted(theirs[what])
        old = sorted(old)
        ratio = median(new) / median(old)
        # If the middle halves of the turns overlap, the difference is no more than noise.
        apart = quantile(new, 0.25) > quantile(old, 0.75) or quantile(new, 0.75) < quantile(old, 0.25)
        word = ("slower" if ratio > 1 else "faster") if apart else SAME
        cells = [what]
        for side in (old, new):
            cells += [
                time_text(median(side)),
                f"{time_text(quantile(side, 0.25))} .. {time_text(quantile(side, 0.75))}",
            ]
        lines.append([*cells, f"{ratio:.2f}", word])
    head = ["", before, "middle half", after, "middle half", "ratio", ""]
    return grid(head, lines)
