"""``python -m benchmarks plasma-restart``: how long Plasma clients wait when the front end is killed.

From SIGKILL until a new connection has every object that was sealed, as ``entrepot start --plasma`` restarts it. Other
clients put objects until it dies: whatever they were told is sealed must be there, too.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot._daemon.plasma_front_end import front_end_binary

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.plasma_connection import PlasmaConnection

if TYPE_CHECKING:
    from argparse import _SubParsersAction

STORE_MIB = 1024
OBJECT_BYTES = 64 << 10
LOAD_BYTES = 1 << 10  # of each object that is put until the death
BATCH = 1000  # objects in a get; making longer requests takes this client more time than the front end needs
END_SECONDS = 20.0
UPTIME_SECONDS = 1.2  # one that dies earlier than a second after its start is started again only after a pause


def add_plasma_restart(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``plasma-restart``."""
    parser = commands.add_parser(
        "plasma-restart", help="from the death of the front end until Plasma clients have their objects again"
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of deaths (default 5); the median is printed")
    parser.add_argument("--objects", type=int, default=1000, help="sealed objects of 64 KiB (default 1000)")
    parser.add_argument("--writers", type=int, default=2, help="clients that put 1 KiB until it dies (default 2)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the median."""
    deaths = restarts(arguments.rounds, arguments.objects, arguments.writers)
    milliseconds = [death.milliseconds for death in deaths]
    under_load = [death.put_under_load for death in deaths]
    print(
        f"{arguments.objects} objects of {OBJECT_BYTES >> 10} KiB, and {min(under_load)} to {max(under_load)} of "
        f"{LOAD_BYTES >> 10} KiB that {arguments.writers} clients sealed until the front end died: "
        f"{statistics.median(milliseconds):.1f} ms from its death until a client has all of them (median of "
        f"{arguments.rounds}; {min(milliseconds):.1f} to {max(milliseconds):.1f} ms)"
    )
    return 0


@dataclass(frozen=True)
class Death:
    """One death of the front end.

    Attributes:
        milliseconds: from SIGKILL until replies have named every object.
        put_under_load: how many of the objects were sealed while clients put as fast as they could, until it died.
    """

    milliseconds: float
    put_under_load: int


def restarts(rounds: int, objects: int, writers: int) -> list[Death]:
    """Kill the front end again and again, and read everything that was sealed from the one that replaces it.

    Args:
        rounds: how often it is killed.
        objects: number of objects, of 64 KiB each, that were sealed before.
        writers: number of clients that put objects of 1 KiB until it dies.

    Raises:
        RuntimeError: an object was not there, or had other bytes.
    """
    sealed = {b"restart-%012d" % number: _content(number, OBJECT_BYTES) for number in range(objects)}
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        with own_store(folder / "store", STORE_MIB, "--spill-path", "none") as store:
            socket = folder / "plasma.sock"
            flags = ["-s", str(socket), "-m", str(STORE_MIB << 19), "--address", store.address, "--keep-running"]
            supervisor = subprocess.Popen([front_end_binary(), *flags], stderr=subprocess.DEVNULL)
            try:
                connection = PlasmaConnection(socket)
                for oid, content in sealed.items():
                    connection.create_and_seal(oid, content, b"")
                return [_round(socket, sealed, writers) for _ in range(rounds)]
            finally:
                supervisor.terminate()
                supervisor.wait(END_SECONDS)


class _Writer(threading.Thread):
    """Puts objects until the front end dies.

    Attributes:
        sealed: what it was told is sealed, and its bytes.
    """

    def __init__(self, socket: Path, number: int) -> None:
        super().__init__(daemon=True)
        self.sealed: dict[bytes, bytes] = {}
        self.unanswered = b""  # the last one, of which it does not know
        self._connection = PlasmaConnection(socket)
        self._first = number * 100_000_000

    def run(self) -> None:
        try:
            for number in itertools.count(self._first):
                oid, content = b"load-%015d" % number, _content(number, LOAD_BYTES)
                self.unanswered = oid
                self._connection.create_and_seal(oid, content, b"")
                self.sealed[oid] = content
        except OSError:  # it has died
            self._connection.close()


def _round(socket: Path, sealed: dict[bytes, bytes], writers: int) -> Death:
    before = PlasmaConnection(socket)
    load = [_Writer(socket, number) for number in range(writers)]
    for writer in load:
        writer.start()
    time.sleep(UPTIME_SECONDS)
    begin = time.perf_counter()
    os.kill(before.server_pid(), signal.SIGKILL)
    before.wait_closed()
    for writer in load:
        writer.join(END_SECONDS)
    written = {oid: content for writer in load for oid, content in writer.sealed.items()}
    oids = [*sealed, *written]
    connection = PlasmaConnection(socket)
    values = [value for batch in _batches(oids) for value in connection.get(batch, 10_000)]
    seconds = time.perf_counter() - begin
    for oid, value in zip(oids, values, strict=True):
        if value is None or value[0] != (sealed.get(oid) or written[oid]):
            raise RuntimeError(f"object {oid!r} is {'not there' if value is None else 'another'}")
    for oid in written:
        connection.release(oid)
    for oid in (*written, *(writer.unanswered for writer in load)):  # the next round puts the same IDs
        connection.delete(oid)
    connection.close()
    before.close()
    return Death(seconds * 1e3, len(written))


def _batches(oids: list[bytes]) -> list[list[bytes]]:
    return [oids[first : first + BATCH] for first in range(0, len(oids), BATCH)]


def _content(number: int, nbytes: int) -> bytes:
    return (b"%d," % number * nbytes)[:nbytes]
