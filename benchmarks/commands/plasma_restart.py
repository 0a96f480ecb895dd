"""``python -m benchmarks plasma-restart``: how long Plasma clients wait when the front end is killed.

From SIGKILL until a new connection has every object that was sealed, as ``entrepot start --plasma`` restarts it.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from entrepot._daemon.plasma_front_end import front_end_binary

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.plasma_connection import PlasmaConnection

if TYPE_CHECKING:
    from argparse import _SubParsersAction

STORE_MIB = 1024
OBJECT_BYTES = 64 << 10
END_SECONDS = 20.0
UPTIME_SECONDS = 1.2  # one that dies earlier than a second after its start is started again only after a pause


def add_plasma_restart(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``plasma-restart``."""
    parser = commands.add_parser(
        "plasma-restart", help="from the death of the front end until Plasma clients have their objects again"
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of deaths (default 5); the median is printed")
    parser.add_argument("--objects", type=int, default=1000, help="sealed objects of 64 KiB (default 1000)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the median."""
    milliseconds = restart_milliseconds(arguments.rounds, arguments.objects)
    print(
        f"{arguments.objects} objects of {OBJECT_BYTES >> 10} KiB: {statistics.median(milliseconds):.1f} ms from the "
        f"front end's death until a client has all of them (median of {arguments.rounds}; "
        f"{min(milliseconds):.1f} to {max(milliseconds):.1f} ms)"
    )
    return 0


def restart_milliseconds(rounds: int, objects: int) -> list[float]:
    """From SIGKILL to the reply that names every object, in milliseconds, for each death.

    Args:
        rounds: how often the front end is killed.
        objects: number of objects, of 64 KiB each, that were sealed before.

    Raises:
        RuntimeError: an object was not there, or had other bytes.
    """
    oids = [b"restart-%012d" % number for number in range(objects)]
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        with own_store(folder / "store", STORE_MIB, "--spill-path", "none") as store:
            socket = folder / "plasma.sock"
            flags = ["-s", str(socket), "-m", str(STORE_MIB << 19), "--address", store.address, "--keep-running"]
            supervisor = subprocess.Popen([front_end_binary(), *flags], stderr=subprocess.DEVNULL)
            try:
                connection = PlasmaConnection(socket)
                for number, oid in enumerate(oids):
                    connection.create_and_seal(oid, _content(number), b"")
                return [_round(socket, oids) for _ in range(rounds)]
            finally:
                supervisor.terminate()
                supervisor.wait(END_SECONDS)


def _round(socket: Path, oids: list[bytes]) -> float:
    before = PlasmaConnection(socket)
    time.sleep(UPTIME_SECONDS)
    begin = time.perf_counter()
    os.kill(before.server_pid(), signal.SIGKILL)
    before.wait_closed()
    connection = PlasmaConnection(socket)
    values = connection.get(oids, 10_000)
    seconds = time.perf_counter() - begin
    for number, value in enumerate(values):
        if value is None or value[0] != _content(number):
            raise RuntimeError(f"object {oids[number]!r} is {'not there' if value is None else 'another'}")
    connection.close()
    before.close()
    return seconds * 1e3


def _content(number: int) -> bytes:
    return (b"%d," % number * OBJECT_BYTES)[:OBJECT_BYTES]
