"""``python -m benchmarks transport``: objects fetched from another host's store, beside iperf3.

Two hosts as namespaces of this machine with a veth pair between them, held to a rate and unlimited; on each a store and
a process of the transport. Rounds of a fetch and of iperf3, with as many bytes and connections in the same direction,
alternate in one run; only their ratio is meaningful. Nothing is compressed in these. Then a table is fetched over
slower links, with and without compression, by turns. The memory of both stores is warm. Needs the right to make
namespaces, and iperf3.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.commands.transport_peers import measure
from benchmarks.commands.transport_programs import ask, gbits_per_second, wait_ready
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    import entrepot
    from isolated_hosts import Host

NETWORK = ROOT / "tests" / "cluster" / "network"
WORKER = Path(__file__).with_name("transport_worker.py")
PORT = 7421
STORE_MIB = 2560
TABLE_ROWS = 2_000_000  # 64 MB
ANSWER_SECONDS = 120.0
HELD_RATE = "5gbit"
SLOW_RATES = ("1gbit", "200mbit")


@dataclass(frozen=True)
class Case:
    """What is fetched.

    Attributes:
        name: for the table.
        rate: of the link, for tc; empty: unlimited.
        count: objects.
        nbytes: of each.
        goal: ratio to iperf3; None: none.
    """

    name: str
    rate: str
    count: int
    nbytes: int
    goal: float | None


@dataclass
class Figures:
    """The results of one case: medians of the rounds, in Gbit/s of payload."""

    case: str
    iperf3: float
    transport: float
    ratio: float
    goal: float | None


@dataclass
class Packed:
    """A table over a slow link: medians of the rounds, in Gbit/s of payload, without and with compression."""

    rate: str
    plain: float
    packed: float


def add_transport(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``transport``."""
    parser = commands.add_parser("transport", help="objects fetched from another host's store, beside iperf3")
    parser.add_argument("--rounds", type=int, default=7, help="of each (default 7); medians are printed")
    parser.add_argument("--connections", type=int, default=4, help="of both (default 4)")
    parser.add_argument("--mib", type=int, default=1024, help="size of the large object (default 1024)")
    parser.add_argument("--objects", type=int, default=10_000, help="of 64 KiB in one fetch (default 10,000)")
    parser.add_argument("--transport", choices=("tcp", "ucx"), default="tcp", help="of the gateways (default tcp)")
    parser.add_argument(
        "--beside", nargs="+", choices=("ray", "vineyard"), default=[], help="measure these systems' transfers, too"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def cases(arguments: argparse.Namespace) -> list[Case]:
    """What is measured."""
    large, small = f"{arguments.mib} MiB object", f"{arguments.objects} x 64 KiB"
    return [
        Case(f"{large}, {HELD_RATE}", HELD_RATE, 1, arguments.mib << 20, 0.95),
        Case(f"{large}, unlimited", "", 1, arguments.mib << 20, 0.8),
        Case(f"{small}, {HELD_RATE}", HELD_RATE, arguments.objects, 64 << 10, None),
        Case(f"{small}, unlimited", "", arguments.objects, 64 << 10, 0.7),
    ]


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    sys.path.insert(0, str(NETWORK))
    from isolated_hosts import refusal, two_hosts

    missing = refusal() or ("" if shutil.which("iperf3") else "iperf3 is missing (Debian package iperf3)")
    if missing:
        print(f"transport: cannot be measured: {missing}")
        return 1
    # The hosts share a kernel: UCX would find that they share memory, and that each reaches the other's loopback.
    os.environ |= {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tr-")))
        source = stack.enter_context(own_store(folder / "source", STORE_MIB, "--spill-path", "none"))
        sink = stack.enter_context(own_store(folder / "sink", STORE_MIB, "--spill-path", "none"))
        near, far = stack.enter_context(two_hosts())
        settings = (arguments.transport, arguments.connections)
        fetching, fetching_packed = (
            stack.enter_context(_fetching(near, far, source, sink, port, compression, *settings))
            for port, compression in ((PORT, "off"), (PORT + 1, "auto"))
        )
        far.popen(["iperf3", "--server"], stdout=subprocess.DEVNULL)
        figures = [
            _measure(case, source, near, far, fetching, arguments.rounds, arguments.connections)
            for case in cases(arguments)
        ]
        peers = {}
        for host in (near, far):
            host.set_rate("")
        peer_cases = [(1, arguments.mib << 20), (arguments.objects, 64 << 10)]
        for system in arguments.beside:
            place = folder / system
            place.mkdir()
            peers[system] = measure(system, place, near, far, peer_cases, STORE_MIB << 20, arguments.rounds)
        through_gateways = _measure_get_many(
            folder, source, sink, near, far, arguments.rounds, arguments.connections, arguments.objects
        )
        packed = [
            _measure_packed(rate, source, near, far, (fetching, fetching_packed), arguments.rounds)
            for rate in SLOW_RATES
        ]
    rows = [
        [f.case, f"{f.iperf3:.2f}", f"{f.transport:.2f}", f"{f.ratio:.2f}", "" if f.goal is None else f"{f.goal:g}"]
        for f in figures
    ]
    print(f"Gbit/s of payload, {arguments.connections} connections, warm memory, medians of {arguments.rounds}:")
    print(grid(["what", "iperf3", "transport", "ratio", "goal"], rows))
    for system, (large, small) in peers.items():
        print(f"{system}, unlimited: {arguments.mib} MiB object {large:.2f}, {arguments.objects} x 64 KiB {small:.3f}")
    plain, ours = through_gateways
    print(f"{arguments.objects} x 64 KiB in one get_many, through the gateways, unlimited:")
    print(f"iperf3 {plain:.2f}, get_many {ours:.2f}, ratio {ours / plain:.2f}")
    print(f"A table of {TABLE_ROWS} rows, as it is and compressed:")
    shown = [[p.rate, f"{p.plain:.2f}", f"{p.packed:.2f}", f"{p.packed / p.plain:.2f}"] for p in packed]
    print(grid(["link", "as it is", "compressed", "ratio"], shown))
    if arguments.json is not None:
        result = {
            "machine": machine(),
            "commit": commit(),
            "figures": [asdict(f) for f in figures],
            "peers": peers,
            "get_many": {"iperf3": plain, "get_many": ours},
            "compressed": [asdict(p) for p in packed],
        }
        arguments.json.write_text(json.dumps(result), encoding="utf-8")
    return 0


def _measure(
    case: Case, source: entrepot.Store, near: Host, far: Host, fetching: Any, rounds: int, connections: int
) -> Figures:
    import numpy as np

    for host in (near, far):
        host.set_rate(case.rate)
    ids = [str(source.put(np.full(case.nbytes, number % 251, dtype=np.uint8))) for number in range(case.count)]
    total = case.count * case.nbytes
    plain, ours = [], []
    for warm_up in (True, *[False] * rounds):
        rate = _iperf3(near, far, total, connections)
        fetched = gbits_per_second(ask(fetching, ids), total)
        if not warm_up:
            plain.append(rate / 1e9)
            ours.append(fetched)
    source._raw().delete([bytes.fromhex(text) for text in ids])  # pyright: ignore[reportPrivateUsage]
    medians = statistics.median(plain), statistics.median(ours)
    return Figures(case.name, *medians, medians[1] / medians[0], case.goal)


def _measure_get_many(
    folder: Path,
    source: entrepot.Store,
    sink: entrepot.Store,
    near: Host,
    far: Host,
    rounds: int,
    connections: int,
    count: int,
) -> tuple[float, float]:
    """Of iperf3, and of a ``get_many`` through the gateways: Gbit/s of payload, medians of the rounds."""
    import numpy as np

    from benchmarks.commands.transport_gateways import gateways, get_many

    nbytes = 64 << 10
    for host in (near, far):
        host.set_rate("")
    ids = [source.put(np.full(nbytes, number % 251, dtype=np.uint8)) for number in range(count)]
    plain, ours = [], []
    with gateways(folder, [(far, source), (near, sink)]):
        for warm_up in (True, *[False] * rounds):
            rate = _iperf3(near, far, count * nbytes, connections)
            got = get_many(source, sink, ids, count * nbytes)
            if not warm_up:
                plain.append(rate / 1e9)
                ours.append(got)
    source._raw().delete([oid.binary for oid in ids])  # pyright: ignore[reportPrivateUsage]
    return statistics.median(plain), statistics.median(ours)


def _measure_packed(
    rate: str, source: entrepot.Store, near: Host, far: Host, fetching: tuple[Any, Any], rounds: int
) -> Packed:
    for host in (near, far):
        host.set_rate(rate)
    oid = source.put(_table())
    nbytes = source.info(oid).nbytes
    gbits: tuple[list[float], list[float]] = ([], [])
    for warm_up in (True, *[False] * rounds):
        for process, figures in zip(fetching, gbits, strict=True):
            figure = gbits_per_second(ask(process, [str(oid)]), nbytes)
            if not warm_up:
                figures.append(figure)
    source.delete(oid)
    return Packed(rate, statistics.median(gbits[0]), statistics.median(gbits[1]))


def _table() -> Any:
    """A table as they come: numbers in order, categories, amounts with two decimals, and one column of noise."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(1)
    columns = {
        "time": np.cumsum(rng.integers(0, 60, TABLE_ROWS)),
        "kind": rng.integers(0, 12, TABLE_ROWS),
        "amount": np.round(rng.exponential(20, TABLE_ROWS), 2),
        "noise": rng.random(TABLE_ROWS),
    }
    return pa.table(columns)


def _iperf3(near: Host, far: Host, total: int, connections: int) -> float:
    """Bits per second, received by ``near``."""
    command = ["iperf3", "--client", far.address, "--parallel", str(connections), "--bytes", str(total)]
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            output = near.run([*command, "--reverse", "--json"], timeout=ANSWER_SECONDS)
            return float(json.loads(output)["end"]["sum_received"]["bits_per_second"])
        except RuntimeError:  # the server is starting, or busy with what is left of the last round
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@contextmanager
def _fetching(
    near: Host, far: Host, source: Any, sink: Any, port: int, compression: str, transport: str, connections: int
) -> Iterator[subprocess.Popen[str]]:
    """A process that serves the source on one host, and one that fetches from it on the other."""
    address = f"{far.address}:{port}"
    with (
        _worker(far, "serve", source.address, address, transport, compression),
        _worker(near, "fetch", sink.address, address, transport, str(connections)) as process,
    ):
        yield process


@contextmanager
def _worker(host: Host, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = host.popen(
        [sys.executable, str(WORKER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_ready(process, "a worker of the benchmark")
    yield process
