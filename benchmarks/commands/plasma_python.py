"""``python -m benchmarks plasma-python``: ``entrepot.plasma`` beside Plasma's own client and server.

The same calls on the same values, each side in a process of its own with a store of its own; the sides alternate, round
by round. Plasma is pyarrow 11, with the Python and NumPy that it needs.
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
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.environments import environment
from benchmarks.harness.machine import commit, machine
from benchmarks.systems.base import accepts

if TYPE_CHECKING:
    from argparse import _SubParsersAction

WORKER = Path(__file__).with_name("plasma_python_worker.py")
WORKER_SECONDS = 300
STORE_MIB = 1024
SIDES = ("entrepot.plasma", "Plasma")


def add_plasma_python(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``plasma-python``."""
    parser = commands.add_parser("plasma-python", help="entrepot.plasma beside Plasma's own client and server")
    parser.add_argument("--rounds", type=int, default=5, help="of each side (default 5); medians are printed")
    parser.add_argument("--calls", type=int, default=5000, help="of each kind in a round (default 5000)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        with (
            own_store(folder / "store", STORE_MIB, "--spill-path", "none") as store,
            plasma_server(folder, STORE_MIB) as peer,
        ):
            for _ in range(arguments.rounds):
                rounds[SIDES[0]].append(
                    round_of_calls(sys.executable, "entrepot.plasma", store.address, arguments.calls)
                )
                rounds[SIDES[1]].append(round_of_calls(environment("plasma"), "pyarrow.plasma", peer, arguments.calls))
    figures = {
        call: {side: {p: _median(rounds[side], call, p) for p in ("median", "p99")} for side in SIDES}
        for call in rounds[SIDES[0]][0]
    }
    print("| call | entrepot.plasma: median, p99 | Plasma: median, p99 | times as fast, at the median |")
    print("|---|---:|---:|---:|")
    for call, sides in figures.items():
        cells = [f"{sides[side]['median'] * 1e6:.2f} us, {sides[side]['p99'] * 1e6:.2f} us" for side in SIDES]
        print(f"| {call} | {' | '.join(cells)} | {sides[SIDES[1]]['median'] / sides[SIDES[0]]['median']:.1f} |")
    if arguments.json is not None:
        document = {"machine": machine(), "commit": commit(), "figures": figures}
        arguments.json.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return 0


def _median(rounds: list[dict[str, Any]], call: str, quantile: str) -> float:
    return float(statistics.median(each[call][quantile] for each in rounds))


def round_of_calls(python: str, module: str, place: str, calls: int) -> dict[str, Any]:
    """Time ``calls`` of each kind in a new process; return the median and p99 of each, in seconds."""
    command = [python, "-W", "ignore", str(WORKER), module, place.removeprefix("unix://"), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"the worker for {module} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def plasma_server(folder: Path, mib: int) -> Iterator[str]:
    """Context with Plasma's own server, of ``mib`` MiB; yields its socket."""
    (program,) = Path(environment("plasma")).parent.parent.glob("lib/python*/site-packages/pyarrow/plasma-store-server")
    socket = folder / "plasma"
    with open(os.devnull, "wb") as nowhere:
        command = [str(program), "-s", str(socket), "-m", str(mib << 20)]
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    with wait_listening(process, socket):
        yield str(socket)


@contextmanager
def wait_listening(process: subprocess.Popen[bytes], socket: Path) -> Iterator[None]:
    """Context in which the server listens on ``socket``; at its end, the server is killed.

    Raises:
        RuntimeError: the server has exited.
    """
    try:
        while not accepts(socket):
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} exited with code {process.returncode}")
        yield
    finally:
        process.kill()
        process.wait()
