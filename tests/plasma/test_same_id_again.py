"""The same few IDs are created, sealed, read and deleted again and again while front end and daemon are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import entrepot
import pytest

from benchmarks.harness.plasma_connection import IN_USE, NONEXISTENT, NOT_SEALED, OK, ObjectExists, PlasmaConnection

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
IDS = 4
ROUNDS_BEFORE_KILL = 25  # of both clients together
KILLS = 6


def oid(number: int) -> bytes:
    return b"same-id-%012d" % number


def content(number: int, version: int) -> bytes:
    """What a client puts; its beginning says which version it is, and everything else follows from that."""
    return (b"%04d:%06d." % (number, version)) * (1 + version % 5000)


def is_whole(number: int, data: bytes) -> bool:
    name, _, version = data[:11].partition(b":")
    return int(name) == number and data == content(number, int(version))


class Client:
    """Puts, reads and deletes objects under the shared IDs until it is told to end; the server may die at any time.

    Attributes:
        rounds: how many it has finished.
        torn: what it has read and nobody can have put.
    """

    def __init__(self, front_end: Any, seed: int, writing: threading.Lock) -> None:
        self.rounds = 0
        self.torn: list[tuple[int, bytes]] = []
        self._socket = front_end.socket
        self._dice = random.Random(seed)
        self._writing = writing
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ends.is_set():
            with suppress(ConnectionError), closing(PlasmaConnection(self._socket, 60)) as client:
                while not self._ends.is_set():
                    self._round(client)
                    self.rounds += 1

    def _round(self, client: PlasmaConnection) -> None:
        number = self._dice.randrange(IDS)
        data = content(number, self._dice.randrange(100_000))
        with suppress(ObjectExists):
            if self._dice.random() < 0.5:
                client.create_and_seal(oid(number), data, b"")
            else:
                # When the front end has died, the memory may be another object's; the kill waits for those who write.
                with self._writing:
                    client.create(oid(number), len(data), 0)[:] = data
                if self._dice.random() < 0.1:
                    client.abort(oid(number))
                    return
                client.seal(oid(number))
                client.release(oid(number))
        (value,) = client.get([oid(number)], 0)
        read = None if value is None else bytes(value[0])
        if value is not None:
            client.release(oid(number))
        assert client.delete(oid(number)) in (OK, NONEXISTENT, IN_USE, NOT_SEALED)
        # The front end still lived when this was read, so it was pinned.
        if read is not None and not is_whole(number, read):
            self.torn.append((number, read))


@pytest.mark.parametrize("options", [("--isolate",), ()], ids=["isolate", "in place"])
def test_every_version_that_is_read_is_whole(
    daemon: Any, new_front_end: Callable[..., Any], wait_until: Callable[..., None], options: tuple[str, ...]
) -> None:
    front_end = new_front_end(16 * MIB, *options)
    with entrepot.connect(daemon.address) as store:
        writing = threading.Lock()
        clients = [Client(front_end, seed, writing) for seed in range(2)]
        try:
            for kill in range(KILLS):
                before = sum(client.rounds for client in clients)
                wait_until(
                    lambda before=before: sum(client.rounds for client in clients) > before + ROUNDS_BEFORE_KILL,
                    "rounds to be done",
                )
                if kill % 3 != 0:
                    os.kill(store.status()["pid"], signal.SIGKILL)
                if kill % 3 != 1:
                    with writing:
                        front_end.kill()
                    front_end.start()
                # Other clients of the store see whole versions, too.
                for number in range(IDS):
                    with suppress(entrepot.ObjectNotFound):
                        assert is_whole(number, bytes(store.get(entrepot.ObjectID(oid(number))).data))
        finally:
            for client in clients:
                client.end()
        assert [client.torn for client in clients] == [[], []]
        for number in range(IDS):
            store.delete(entrepot.ObjectID(oid(number)))
        assert front_end.stop() == 0
        wait_until(lambda: store.status()["pinned_bytes"] == 0, "the pins of the clients that left to end")
        wait_until(lambda: store.status()["objects"] == 0, "the objects to be gone")
