"""``python -m benchmarks streams``: chunks of a stream between two processes, beside a unix socket's bytes.

Latency: from the start of a put to the value in the hand of a reader that waits for it, beside a round trip of one byte
over a unix socket between two processes. Throughput: chunks that follow each other, beside the same bytes sent and
received over a unix socket. Rounds of both alternate in one run, on a store of its own; only ratios are meaningful.
Three kinds of chunks: an array in the process's memory, which the put copies; one that was made in the store
(``Store.allocating``), which is sealed in place, and whose making is part of the throughput; and one that lies in the
store already, which is referenced. With ``--between-hosts``, the reader has a store and a gateway of its own, on this
machine, and the chunks go through the two gateways.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import entrepot
import numpy as np
from entrepot.errors import EntrepotError, ObjectNotFound

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Iterator

MIB = 1 << 20
GOAL_ROUND_TRIPS = 3.0
GOAL_RATE = 10.0
KINDS = ("copied", "made in the store", "referenced")
_CAPACITY_MIB = 2048
_STREAM = "benchmark"


def add_streams(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``streams``."""
    parser = commands.add_parser("streams", help="chunks of a stream between two processes, beside a unix socket")
    parser.add_argument("--rounds", type=int, default=7, help="of each (default 7)")
    parser.add_argument("--chunks", type=int, default=40, help="in each round (default 40)")
    parser.add_argument("--between-hosts", action="store_true", help="through the gateways of two stores")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    with (
        tempfile.TemporaryDirectory(prefix="st-") as folder,
        own_store(Path(folder, "store"), _CAPACITY_MIB, "--spill-path", "none") as own,
        ExitStack() as stack,
    ):
        store, other = own, own.address
        if arguments.between_hosts:
            store, other = stack.enter_context(_two_hosts(Path(folder), own.address))
        peer = stack.enter_context(_reading_process(other))
        round_trips: list[float] = []
        latencies: dict[str, list[float]] = {kind: [] for kind in KINDS}
        socket_rates: list[float] = []
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(arguments.rounds):
            round_trips += _round_trips(peer, 200)
            socket_rates.append(_socket_rate(peer, 16 * MIB, arguments.chunks))
            for kind in KINDS:
                latencies[kind] += _latencies(store, peer, kind, arguments.chunks)
                rates[kind].append(_stream_rate(store, peer, kind, arguments.chunks))
    round_trip, socket_rate = statistics.median(round_trips), statistics.median(socket_rates)
    print(f"one byte over a unix socket and back: {1e6 * round_trip:.1f} us")
    print(f"16 MiB over a unix socket: {socket_rate / 1e9:.2f} GB/s")
    rows = [
        [
            kind,
            f"{1e6 * statistics.median(latencies[kind]):.0f} us",
            f"{statistics.median(latencies[kind]) / round_trip:.1f}",
            f"{statistics.median(rates[kind]) / 1e9:.1f} GB/s",
            f"{statistics.median(rates[kind]) / socket_rate:.1f}",
        ]
        for kind in KINDS
    ]
    print(grid(["chunk", "1 MiB in hand", "round trips", "16 MiB chunks", "of the socket's rate"], rows))
    print(f"goals: {GOAL_ROUND_TRIPS:g} round trips, {GOAL_RATE:g} times the socket's rate")
    return 0


@contextmanager
def _two_hosts(folder: Path, first: str) -> Iterator[tuple[entrepot.Store, str]]:
    """A second store, and a gateway for each; yields the session of the cluster in the first, and the second's address.

    Processes that connect to the second get that session too, because it is declared in both.
    """
    with own_store(folder / "other", _CAPACITY_MIB, "--spill-path", "none") as other, ExitStack() as stack:
        for address in (first, other.address):
            command = [sys.executable, "-m", "entrepot", "gateway", "--address", address]
            gateway = subprocess.Popen([*command, "--cluster", f"embedded://{folder}/benchmark"])
            stack.callback(gateway.wait)
            stack.callback(gateway.terminate)
            stack.enter_context(entrepot.connect(address, cluster=True))
        store = stack.enter_context(entrepot.connect(first, cluster=True))
        end = time.monotonic() + 60
        while True:
            try:
                for each in (store, other):
                    with suppress(ObjectNotFound):
                        each.stream(_STREAM, create=False)
                break
            except EntrepotError:  # a gateway is not there yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        yield store, other.address


@contextmanager
def _reading_process(address: str) -> Iterator[socket.socket]:
    """A process that does what it is told over the socket, at the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    process = multiprocessing.get_context("spawn").Process(target=_peer, args=(address, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(30)
        process.kill()


def _peer(address: str, channel: socket.socket) -> None:
    buffer = memoryview(bytearray(16 * MIB))
    with entrepot.connect(address) as store:
        while command := channel.recv(1):
            if command == b"p":
                channel.sendall(b"p")
            elif command == b"s":
                nbytes, count = struct.unpack("<QQ", _receive(channel, memoryview(bytearray(16))))
                for _ in range(count):
                    _receive(channel, buffer[:nbytes])
                channel.sendall(b"d")
            elif command == b"r":
                arrivals = []
                reader = store.stream(_STREAM).reader("benchmark")
                channel.sendall(b"o")
                for value in reader:
                    arrivals.append(time.perf_counter())
                    assert value.nbytes >= MIB
                    del value
                channel.sendall(struct.pack(f"<{len(arrivals)}d", *arrivals))


def _receive(channel: socket.socket, into: memoryview) -> memoryview:
    done = 0
    while done < len(into):
        received = channel.recv_into(into[done:])
        if not received:
            raise EOFError("the peer has ended")
        done += received
    return into


def _round_trips(peer: socket.socket, count: int) -> list[float]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        peer.sendall(b"p")
        peer.recv(1)
        times.append(time.perf_counter() - begin)
    return times


def _socket_rate(peer: socket.socket, nbytes: int, count: int) -> float:
    data = np.ones(nbytes, dtype=np.uint8).data  # not bytes(), which would read one page of zeros
    begin = time.perf_counter()
    peer.sendall(b"s" + struct.pack("<QQ", nbytes, count))
    for _ in range(count):
        peer.sendall(data)
    peer.recv(1)
    return nbytes * count / (time.perf_counter() - begin)


def _maker(store: entrepot.Store, kind: str, nbytes: int, stack: ExitStack) -> Callable[[], Any]:
    """What returns the value of the next chunk."""
    if kind == "copied":
        array = np.ones(nbytes, dtype=np.uint8)
        return lambda: array
    if kind == "referenced":
        oid = store.put(np.ones(nbytes, dtype=np.uint8))
        stack.callback(store.delete, oid)
        stored = store.get(oid)
        return lambda: stored
    stack.enter_context(store.allocating())
    return lambda: np.full(nbytes, 1, dtype=np.uint8)


def _latencies(store: entrepot.Store, peer: socket.socket, kind: str, count: int) -> list[float]:
    """Seconds from the start of each put to its arrival; the reader waits for each, as the one before has arrived."""
    with ExitStack() as stack:
        make = _maker(store, kind, MIB, stack)
        stream = store.stream(_STREAM, capacity=2, replace=True)
        peer.sendall(b"r")
        peer.recv(1)
        begins = []
        with stream.writer() as writer:
            for _ in range(count):
                value = make()
                _wait_for_reader(store)
                begins.append(time.perf_counter())
                writer.put(value)
                del value
        arrivals = _arrivals(peer, count)
        return [arrival - begin for arrival, begin in zip(arrivals, begins, strict=True)]


def _arrivals(peer: socket.socket, count: int) -> list[float]:
    return list(struct.unpack(f"<{count}d", _receive(peer, memoryview(bytearray(8 * count)))))


def _wait_for_reader(store: entrepot.Store) -> None:
    while store.status()["waiting"] == 0:
        pass


def _stream_rate(store: entrepot.Store, peer: socket.socket, kind: str, count: int) -> float:
    nbytes = 16 * MIB
    with ExitStack() as stack:
        make = _maker(store, kind, nbytes, stack)
        stream = store.stream(_STREAM, capacity=4, replace=True)
        peer.sendall(b"r")
        peer.recv(1)
        begin = time.perf_counter()
        with stream.writer() as writer:
            for _ in range(count):
                writer.put(make())
        arrivals = _arrivals(peer, count)
        return nbytes * count / (arrivals[-1] - begin)


if __name__ == "__main__":
    sys.exit("run it as: python -m benchmarks streams")
