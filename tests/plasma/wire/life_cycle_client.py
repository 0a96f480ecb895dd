"""A Plasma client that stops in a state of an object's life, and goes on from there when it is told to.

Arguments: the front end's socket, the state, a number for its IDs, and ``fork`` if a child is to go on in its place.

It writes ``ready`` and its process ID, reads a line, goes on, and writes ``finished``, or ``cut off`` if the front end
has hung up. What it has stored is deleted by then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.harness.plasma_connection import IN_USE, NONEXISTENT, OK, PlasmaConnection

NBYTES = 1 << 20
CONTENT = bytes(range(256)) * (NBYTES // 256)
LONG_MS = 90_000
NOTIFICATION_SECONDS = 60.0


def object_of(number: int) -> bytes:
    """ID of the object that the client of this number puts."""
    return b"life-cycle-own-%05d" % number


def awaited_by(number: int) -> bytes:
    """ID of the object that another client puts, and this one gets."""
    return b"life-cycle-get-%05d" % number


def _delete(client: PlasmaConnection, oid: bytes) -> None:
    """Check the object's content and delete it. A client holds an object once, however often it has got it."""
    (value,) = client.get([oid], LONG_MS)
    assert value is not None
    assert bytes(value[0]) == CONTENT
    client.release(oid)
    assert client.delete(oid) == OK
    assert not client.contains(oid)


def created(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It writes into an object that is not sealed."""
    oid = object_of(number)
    memory = client.create(oid, NBYTES, 0)
    memory[: NBYTES // 2] = CONTENT[: NBYTES // 2]
    yield
    memory[NBYTES // 2 :] = CONTENT[NBYTES // 2 :]
    client.seal(oid)
    _delete(client, oid)


def create_not_fetched(client: PlasmaConnection, number: int) -> Iterator[None]:
    """The answer to its create, and the segment's descriptor, are not read."""
    oid = object_of(number)
    client.begin_create(oid, NBYTES, 0)
    client.wait_for_answer()
    yield
    client.end_create(NBYTES)[:] = CONTENT
    client.seal(oid)
    _delete(client, oid)


def half_sent(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It has sent half of an object."""
    oid = object_of(number)
    send_rest = client.begin_create_and_seal(oid, CONTENT, b"")
    yield
    send_rest()
    client.end_create_and_seal()
    _delete(client, oid)


def held_by_its_creator(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It has sealed an object, which it holds until it releases it."""
    oid = object_of(number)
    client.create(oid, NBYTES, 0)[:] = CONTENT
    client.seal(oid)
    yield
    _delete(client, oid)


def get_waiting(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It gets an object that is not there yet."""
    oid = awaited_by(number)
    client.begin_get([oid], LONG_MS)
    yield
    (value,) = client.end_get()
    assert value is not None
    assert bytes(value[0]) == CONTENT
    _delete(client, oid)


def get_not_fetched(client: PlasmaConnection, number: int) -> Iterator[None]:
    """The answer to its get, and the segment's descriptor, are not read."""
    oid = object_of(number)
    client.create_and_seal(oid, CONTENT, b"")
    client.begin_get([oid], LONG_MS)
    client.wait_for_answer()
    yield
    (value,) = client.end_get()
    assert value is not None
    assert bytes(value[0]) == CONTENT
    _delete(client, oid)


def delete_deferred(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It holds an object that was deleted."""
    oid = object_of(number)
    client.create(oid, NBYTES, 0)[:] = CONTENT
    client.seal(oid)
    (value,) = client.get([oid], LONG_MS)
    assert value is not None
    assert client.delete(oid) == IN_USE
    yield
    assert bytes(value[0]) == CONTENT
    client.release(oid)
    # By the release or, if the daemon has not answered that in time, by this.
    assert client.delete(oid) in (OK, NONEXISTENT)
    assert not client.contains(oid)


def notifications_unread(client: PlasmaConnection, number: int) -> Iterator[None]:
    """It has subscribed, and does not read what it is sent."""
    notifications = client.subscribe()
    notifications.settimeout(NOTIFICATION_SECONDS)
    oid = object_of(number)
    client.create_and_seal(oid, CONTENT, b"")
    yield
    assert notifications.recv(1)
    _delete(client, oid)
    notifications.close()


STATES: dict[str, Callable[[PlasmaConnection, int], Iterator[None]]] = {
    "created": created,
    "create not fetched": create_not_fetched,
    "half sent": half_sent,
    "held by its creator": held_by_its_creator,
    "get waiting": get_waiting,
    "get not fetched": get_not_fetched,
    "delete deferred": delete_deferred,
    "notifications unread": notifications_unread,
}


def main(socket: str, state: str, number: str, *modes: str) -> None:
    client = PlasmaConnection(Path(socket))
    steps = STATES[state](client, int(number))
    next(steps)
    if "fork" in modes and os.fork() != 0:
        signal.pause()  # until it is killed
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    try:
        for _ in steps:
            pass
    except ConnectionError:
        print("cut off", flush=True)
        return
    client.close()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
