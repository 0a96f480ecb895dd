"""The daemon stands still while Plasma clients get, look for and delete objects: nobody is told what is not true.

What seals do meanwhile is in test_stopped_daemon.py.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import entrepot
import pytest
from in_thread import in_thread
from suspension import standing_still

from benchmarks.harness.plasma_connection import NONEXISTENT, OK, PlasmaConnection

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
TIMEOUT_MS = 100
SOON_SECONDS = 10.0  # far less than the 30 after which a request to the daemon is given up
FOREVER_MS = 90_000


def oid(number: int) -> bytes:
    return b"no-answer-%010d" % number


def seconds_of(request: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.monotonic()
    result = request()
    return time.monotonic() - begin, result


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    with entrepot.connect(daemon.address) as connected:
        yield connected


@pytest.fixture
def front_end(new_front_end: Callable[..., Any]) -> Any:
    return new_front_end(32 * MIB)


def test_a_get_ends_at_its_time_out(store: entrepot.Store, front_end: Any) -> None:
    with closing(PlasmaConnection(front_end.socket)) as client, closing(PlasmaConnection(front_end.socket)) as other:
        other.create_and_seal(oid(1), b"data", b"")
        assert other.get([oid(1)], 0) != [None]  # so its memory is mapped
        other.release(oid(1))
        with standing_still(store.status()["pid"]):
            for timeout_ms in (0, TIMEOUT_MS, TIMEOUT_MS):
                begin = time.monotonic()
                values = client.get([oid(2), oid(1)], timeout_ms)
                assert time.monotonic() - begin < SOON_SECONDS
                assert values[0] is None
                assert values[1] is not None
                assert bytes(values[1][0]) == b"data"
        assert client.get([oid(2)], TIMEOUT_MS) == [None]


def test_a_get_of_what_is_not_mapped_yet_ends_at_its_time_out_too(store: entrepot.Store, front_end: Any) -> None:
    with closing(PlasmaConnection(front_end.socket)) as client:
        client.create(oid(1), MIB, 0)[:] = bytes(MIB)
        client.seal(oid(1))
    front_end.kill()
    front_end.start()
    with closing(PlasmaConnection(front_end.socket)) as client, closing(PlasmaConnection(front_end.socket)) as other:
        with standing_still(store.status()["pid"]):
            for timeout_ms in (TIMEOUT_MS, 0):
                begin = time.monotonic()
                assert client.get([oid(1)], timeout_ms) == [None]
                assert time.monotonic() - begin < SOON_SECONDS
            waiting = in_thread(lambda: other.get([oid(1)], FOREVER_MS))
            assert client.contains(oid(1))
            assert not waiting.done()
        (value,) = waiting.result(60)
        assert value[0] == bytes(MIB)


def test_a_get_that_waits_is_answered_once_the_daemon_goes_on(store: entrepot.Store, front_end: Any) -> None:
    with closing(PlasmaConnection(front_end.socket)) as client, closing(PlasmaConnection(front_end.socket)) as other:
        with standing_still(store.status()["pid"]):
            waiting = in_thread(lambda: client.get([oid(1)], FOREVER_MS))
            assert other.get([oid(2)], TIMEOUT_MS) == [None]
            assert not waiting.done()
        store.put(b"from another client", id=entrepot.ObjectID(oid(1)))
        (value,) = waiting.result(60)
        assert bytes(value[0]) == b"from another client"


@pytest.mark.parametrize("is_killed", [False, True], ids=["continued", "killed"])
def test_a_delete_waits_until_it_is_known_and_nobody_else_does(
    store: entrepot.Store, front_end: Any, is_killed: bool
) -> None:
    with closing(PlasmaConnection(front_end.socket)) as client, closing(PlasmaConnection(front_end.socket)) as other:
        for number in (1, 2):
            client.create_and_seal(oid(number), b"data", b"")
        assert client.get([oid(2)], 0) != [None]  # so its memory is mapped
        pid = store.status()["pid"]
        with standing_still(pid):
            deletion = in_thread(lambda: client.delete(oid(1)))
            seconds, values = seconds_of(lambda: other.get([oid(2)], TIMEOUT_MS))
            assert seconds < SOON_SECONDS
            assert values[0] is not None
            assert not deletion.done()
            if is_killed:
                os.kill(pid, signal.SIGKILL)
        assert deletion.result(60) == OK
        assert not client.contains(oid(1))
        assert not store.exists(entrepot.ObjectID(oid(1)))
        assert client.delete(oid(1)) == NONEXISTENT
        assert store.exists(entrepot.ObjectID(oid(2)))


def test_contains_waits_until_it_is_known(store: entrepot.Store, front_end: Any) -> None:
    with closing(PlasmaConnection(front_end.socket)) as client, closing(PlasmaConnection(front_end.socket)) as other:
        other.create_and_seal(oid(1), b"data", b"")
        with standing_still(store.status()["pid"]):
            asking = in_thread(lambda: client.contains(oid(2)))
            assert other.contains(oid(1))
            assert not asking.done()
        assert asking.result(60) is False


def test_strict_evictions_hold_up_nobody_and_are_done(store: entrepot.Store, new_front_end: Callable[..., Any]) -> None:
    front_end = new_front_end(32 * MIB, "--strict")
    with closing(PlasmaConnection(front_end.socket)) as client:
        for number in (1, 2):
            client.create_and_seal(oid(number), bytes(1000), b"")
        assert client.get([oid(2)], 0) != [None]  # held, so it is not evicted
        with standing_still(store.status()["pid"]):
            seconds, nbytes = seconds_of(lambda: client.evict(1000))
            assert nbytes == 1000
            assert seconds < SOON_SECONDS
        assert client.delete(oid(3)) == NONEXISTENT  # which the same daemon says behind it
        assert client.get([oid(1)], 0) == [None]
        assert store.exists(entrepot.ObjectID(oid(2)))


def test_the_front_end_ends_while_answers_are_waited_for(store: entrepot.Store, front_end: Any) -> None:
    socket: Path = front_end.socket
    with closing(PlasmaConnection(socket)) as client, closing(PlasmaConnection(socket)) as other:
        client.create_and_seal(oid(1), b"data", b"")

        def is_refused(request: Callable[[], Any]) -> bool:
            with suppress(ConnectionError):
                request()
                return False
            return True

        with standing_still(store.status()["pid"]):
            waiting = [in_thread(lambda: is_refused(lambda: client.delete(oid(1))))]
            waiting.append(in_thread(lambda: is_refused(lambda: other.contains(oid(2)))))
            assert front_end.stop() == 0
        assert all(asking.result(60) for asking in waiting)
