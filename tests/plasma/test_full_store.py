"""In a store that is full and may not spill, what Plasma clients have sealed stays readable for them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import entrepot
import pytest
from suspension import suspend

from benchmarks.harness.plasma_connection import OutOfMemory, PlasmaConnection

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
OBJECTS = 12
OBJECT_BYTES = 5 * MIB
WAIT_MS = 30_000


def oid(number: int) -> bytes:
    return b"full-store-%09d" % number


def content(number: int) -> bytes:
    return (b"%d," % number * OBJECT_BYTES)[:OBJECT_BYTES]


def put(client: PlasmaConnection, number: int) -> None:
    client.create(oid(number), OBJECT_BYTES, 0)[:] = content(number)
    client.seal(oid(number))
    client.release(oid(number))


def fill(client: PlasmaConnection) -> None:
    for number in range(OBJECTS):
        put(client, number)


def readable(client: PlasmaConnection) -> list[int]:
    intact = []
    for number in range(OBJECTS):
        (value,) = client.get([oid(number)], WAIT_MS)
        if value is None:
            continue
        assert value[0] == content(number)
        intact.append(number)
        client.release(oid(number))
    return intact


@pytest.fixture
def full(new_daemon: Callable[..., Any], new_front_end: Callable[..., Any]) -> tuple[Any, Any]:
    """A store, and a front end whose clients have filled it; half of what they sealed has left the arena."""
    daemon = new_daemon("64MiB", "--spill-path", "none")
    front_end = new_front_end(32 * MIB, store=daemon)
    with closing(PlasmaConnection(front_end.socket)) as client:
        fill(client)
    return daemon, front_end


def test_what_has_left_the_arena_is_read_where_it_is(full: tuple[Any, Any]) -> None:
    daemon, front_end = full
    with closing(PlasmaConnection(front_end.socket)) as client:
        with pytest.raises(OutOfMemory):  # so there is no room for a copy
            client.create(oid(OBJECTS), OBJECT_BYTES, 0)
        assert readable(client) == list(range(OBJECTS))
        assert client.evict(OBJECTS * OBJECT_BYTES) > 0
        assert readable(client) == list(range(OBJECTS))
    with entrepot.connect(daemon.address) as store:
        assert store.status()["objects"] == OBJECTS


def test_after_the_death_of_the_front_end_too(full: tuple[Any, Any]) -> None:
    _, front_end = full
    for _ in range(2):
        front_end.kill()
        front_end.start()
        with closing(PlasmaConnection(front_end.socket)) as client:
            assert readable(client) == list(range(OBJECTS))


def test_and_after_the_death_of_both(full: tuple[Any, Any]) -> None:
    daemon, front_end = full
    with entrepot.connect(daemon.address) as store:
        os.kill(store.status()["pid"], signal.SIGKILL)
        front_end.kill()
        front_end.start()
        with closing(PlasmaConnection(front_end.socket)) as client:
            assert readable(client) == list(range(OBJECTS))


def test_room_comes_back_when_what_a_dead_front_end_has_left_is_deleted(
    full: tuple[Any, Any], wait_until: Callable[..., None]
) -> None:
    daemon, front_end = full
    front_end.kill()
    front_end.start()
    with closing(PlasmaConnection(front_end.socket)) as client:
        assert readable(client) == list(range(OBJECTS))
        for number in range(OBJECTS):
            assert client.delete(oid(number)) == 0
        with entrepot.connect(daemon.address) as store:
            wait_until(lambda: store.status()["objects"] == 0, "the objects to be deleted")
        fill(client)
        assert readable(client) == list(range(OBJECTS))


def test_what_others_put_is_never_in_memory_that_plasma_clients_can_write(full: tuple[Any, Any]) -> None:
    daemon, front_end = full
    with entrepot.connect(daemon.address) as store, closing(PlasmaConnection(front_end.socket)) as client:
        for number in range(OBJECTS):
            assert client.delete(oid(number)) == 0
        value = os.urandom(OBJECT_BYTES)
        reference = store.put(value)
        (copy,) = client.get([reference.binary], WAIT_MS)
        assert copy is not None
        assert copy[0] == value
        client.overwrite_everything()
        assert copy[0] != value
        assert store.get(reference) == value


def test_with_isolate_a_seal_that_waits_for_the_store_stops_nobody_else(
    daemon: Any, new_front_end: Callable[..., Any]
) -> None:
    front_end = new_front_end(32 * MIB, "--isolate", store=daemon)
    socket = front_end.socket
    with closing(PlasmaConnection(socket)) as sealing, closing(PlasmaConnection(socket)) as other:
        put(sealing, 1)
        sealing.create(oid(2), OBJECT_BYTES, 0)[:] = content(2)
        with entrepot.connect(daemon.address) as store:
            pid = store.status()["pid"]
        suspend(pid)
        try:
            sealing.begin_seal(oid(2))
            assert other.contains(oid(1))
            assert not other.contains(oid(2))
        finally:
            os.kill(pid, signal.SIGCONT)
        sealing.end_seal()
        assert other.contains(oid(2))


@pytest.mark.exhaustive
def test_creates_that_wait_for_memory_fail_together(new_daemon: Callable[..., Any], new_front_end: Any) -> None:
    """Not those of the first few clients after ten seconds, the next ones' ten seconds later, and so on."""
    daemon = new_daemon("32MiB", "--spill-path", "none")
    front_end = new_front_end(32 * MIB, store=daemon)
    seconds: list[float] = []

    def create(number: int) -> None:
        with closing(PlasmaConnection(front_end.socket)) as client, suppress(OutOfMemory):
            begin = time.monotonic()
            try:
                client.create(oid(number), 4 * MIB, 0)
            finally:
                seconds.append(time.monotonic() - begin)

    with entrepot.connect(daemon.address) as store:
        store.put(bytes(29 * MIB))
        waiting = [threading.Thread(target=create, args=(number,)) for number in range(7)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(100)
    assert len(seconds) == 7
    assert max(seconds) < 2 * min(seconds)
