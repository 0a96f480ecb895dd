"""``python -m benchmarks plasma``: ``entrepot-plasma-store`` beside Plasma's own server.

Both serve pyarrow 11's client, which is unchanged. Small calls: one server of each kind, and in each round a new client
of both, which calls them in turn, in short blocks; ratios have their 95 % intervals (``harness.paired_blocks``).
Puts of 1 GiB, and what is left of 2 GiB put into 1 GiB: new servers for each round. Our store's memory is warm before
the first put; Plasma has nothing to warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.commands.plasma_python import plasma_server, wait_listening
from benchmarks.harness.environments import environment
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.paired_blocks import Block, quantile_of, ratio_of

if TYPE_CHECKING:
    from argparse import _SubParsersAction

WORKER = Path(__file__).with_name("plasma_server_worker.py")
WORKER_SECONDS = 300
STORE_MIB = 1024
LARGE_STORE_MIB = 3072  # two thirds of its memory are warm for one large value
SIDES = ("entrepot-plasma-store", "Plasma")
QUANTILES = {"median": 0.5, "p99": 0.99}

Server = Callable[[Path, int], AbstractContextManager[str]]


def add_plasma_server(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``plasma``."""
    parser = commands.add_parser("plasma", help="entrepot-plasma-store beside Plasma's own server")
    parser.add_argument("--rounds", type=int, default=5, help="of small calls, each with a new client (default 5)")
    parser.add_argument("--blocks", type=int, default=60, help="of 50 small calls of each kind in a round (default 60)")
    parser.add_argument("--servers", type=int, default=5, help="new servers for large puts (default 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table for each part."""
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        figures = {
            "small": _small(folder / "small", arguments.rounds, arguments.blocks),
            "large": _large(folder / "large", arguments.servers),
            "full": _full(folder / "full"),
        }
    print(report(figures))
    if arguments.json is not None:
        document = {"machine": machine(), "commit": commit(), "figures": figures}
        arguments.json.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return 0


def report(figures: dict[str, Any]) -> str:
    """The figures as tables in Markdown; in each, the last column is ours over Plasma's."""
    ours, theirs = SIDES
    lines = [
        f"| call | {ours}: median, p99 | {theirs}: median, p99 | ratio of medians | of p99 |",
        "|---|---:|---:|---:|---:|",
    ]
    for call, sides in figures["small"].items():
        cells = [f"{sides[side]['median'] * 1e6:.1f} us, {sides[side]['p99'] * 1e6:.1f} us" for side in SIDES]
        lines.append(f"| {call} | {' | '.join(cells)} | {' | '.join(sides['ratios'].values())} |")
    lines += ["", f"| put of 1 GiB | {ours} | {theirs} | ratio |", "|---|---:|---:|---:|"]
    for put in ("first", "later"):
        medians = [statistics.median(figures["large"][side][put]) for side in SIDES]
        cells = [
            f"{median * 1e3:.0f} ms ({min(values) * 1e3:.0f} to {max(values) * 1e3:.0f})"
            for median, values in zip(medians, (figures["large"][side][put] for side in SIDES), strict=True)
        ]
        lines.append(f"| {put} | {' | '.join(cells)} | {medians[0] / medians[1]:.2f} |")
    lines += ["", f"| 2 GiB put into 1 GiB | {ours} | {theirs} |", "|---|---:|---:|"]
    cells = [f"{figures['full'][side]['readable']} of {figures['full'][side]['put']}" for side in SIDES]
    lines.append(f"| objects that can be read | {' | '.join(cells)} |")
    return "\n".join(lines)


def _small(folder: Path, rounds: int, blocks: int) -> dict[str, dict[str, Any]]:
    folder.mkdir()
    measured: dict[str, dict[str, list[Block]]] = {}
    with _front_end(folder / "ours", STORE_MIB) as ours, _plasma(folder / "theirs", STORE_MIB) as theirs:
        for _ in range(rounds):
            for call, sides in _worker("small", str(blocks), ours, theirs).items():
                kept = measured.setdefault(call, {side: [] for side in SIDES})
                for side, its_blocks in zip(SIDES, sides, strict=True):
                    kept[side] += its_blocks
    figures: dict[str, dict[str, Any]] = {}
    for call, by_side in measured.items():
        figures[call] = {
            side: {name: quantile_of(by_side[side], share) for name, share in QUANTILES.items()} for side in SIDES
        }
        figures[call]["ratios"] = {
            name: str(ratio_of(by_side[SIDES[0]], by_side[SIDES[1]], share)) for name, share in QUANTILES.items()
        }
    return figures


def _large(folder: Path, servers: int) -> dict[str, dict[str, list[float]]]:
    folder.mkdir()
    figures: dict[str, dict[str, list[float]]] = {side: {"first": [], "later": []} for side in SIDES}
    for number in range(servers):
        for side, server in zip(SIDES, (_front_end, _plasma), strict=True):
            with server(folder / f"{side}-{number}", LARGE_STORE_MIB) as socket:
                measured = _worker("large", socket)
            figures[side]["first"].append(measured["first"])
            figures[side]["later"].append(float(statistics.median(measured["later"])))
    return figures


def _full(folder: Path) -> dict[str, dict[str, int]]:
    folder.mkdir()
    figures: dict[str, dict[str, int]] = {}
    for side, server in zip(SIDES, (_spilling_front_end, _plasma), strict=True):
        with server(folder / side, 1024) as socket:
            figures[side] = _worker("full", socket)
    return figures


def _worker(part: str, *rest: str) -> dict[str, Any]:
    command = [environment("plasma"), "-W", "ignore", str(WORKER), part, *rest]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"the worker for {rest[-1]} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def _front_end(folder: Path, mib: int, *options: str) -> Iterator[str]:
    from entrepot._daemon.plasma_front_end import front_end_binary

    folder.mkdir()
    with own_store(folder / "store", mib, *(options or ("--spill-path", "none"))) as store:
        socket = folder / "plasma"
        with (folder / "front-end.log").open("wb") as log:
            command = [str(front_end_binary()), "-s", str(socket), "-m", str(mib << 20), "--address", store.address]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        with wait_listening(process, socket):
            yield str(socket)


def _spilling_front_end(folder: Path, mib: int) -> AbstractContextManager[str]:
    return _front_end(folder, mib, "--spill-path", str(folder / "spilled"))


def _plasma(folder: Path, mib: int) -> AbstractContextManager[str]:
    folder.mkdir()
    return plasma_server(folder, mib)
