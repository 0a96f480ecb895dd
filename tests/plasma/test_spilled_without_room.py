"""What Plasma clients have sealed is on disk, and there is no memory for it: a get waits, up to its time-out."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

from benchmarks.harness.plasma_connection import IN_USE, NONEXISTENT, OK, PlasmaConnection

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
OBJECT_BYTES = 5 * MIB
SPILLED = 4
DISK_BYTES = 96 * MIB
TIMEOUT_MS = 1_000
SOON_SECONDS = 8.0  # less than the ten that the front end waits for memory
FOREVER_MS = 120_000
GETTERS = 6  # more than the front end has threads that wait for objects


def oid(number: int) -> bytes:
    return b"without-room-%07d" % number


def content(number: int) -> bytes:
    return (b"%d," % number * OBJECT_BYTES)[:OBJECT_BYTES]


def data_of(client: PlasmaConnection, object_id: bytes, timeout_ms: int) -> bytes | None:
    (value,) = client.get([object_id], timeout_ms)
    return None if value is None else bytes(value[0])


def fill_disk(folder: Path) -> None:
    """Take what is left of a disk."""
    with (folder / "filler").open("wb") as file:
        step = 4 * MIB
        nbytes = 0
        while step >= os.statvfs(folder).f_frsize:
            try:
                os.posix_fallocate(file.fileno(), nbytes, step)
                nbytes += step
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                step //= 2


def pin_all_memory(store: entrepot.Store) -> tuple[list[entrepot.ObjectID], list[Any]]:
    """Put values and keep them pinned, until there is no memory for another one."""
    oids: list[entrepot.ObjectID] = []
    pinned: list[Any] = []
    with suppress(entrepot.StoreFull):
        while True:
            oids.append(store.put(np.full(MIB, len(oids), dtype=np.uint8)))
            pinned.append(store.get(oids[-1]))
    return oids, pinned


@pytest.fixture
def full(
    tmp_path: Path,
    small_disk: Callable[[Path, int], AbstractContextManager[str]],
    new_daemon: Callable[..., Any],
    new_front_end: Callable[..., Any],
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A front end whose clients' objects are on a disk that is full, beside memory that is; and how to make room."""
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 0.5)
    with small_disk(tmp_path / "disk", DISK_BYTES) as refused:
        if refused:
            pytest.skip(refused)
        daemon = new_daemon("64MiB", "--spill-path", str(tmp_path / "disk"), "--spill-reserve", "0")
        front_end = new_front_end(32 * MIB, store=daemon)
        spilled = [entrepot.ObjectID(oid(number)) for number in range(SPILLED)]
        with entrepot.connect(daemon.address) as store:
            with closing(PlasmaConnection(front_end.socket)) as client:
                for number in range(SPILLED):
                    client.create(oid(number), OBJECT_BYTES, 0)[:] = content(number)
                    client.seal(oid(number))
                    client.release(oid(number))
                assert client.evict(SPILLED * OBJECT_BYTES) == SPILLED * OBJECT_BYTES
            store.evict(*spilled)
            wait_until(
                lambda: all(store.info(each).state == "spilled" for each in spilled), "the objects to be spilled"
            )
            fill_disk(tmp_path / "disk")
            oids, pinned = pin_all_memory(store)

            def make_room() -> None:
                pinned.clear()
                for each in oids:
                    store.delete(each)

            yield front_end, make_room
            pinned.clear()
        daemon.stop()


def test_a_get_finds_nothing_until_its_time_out_and_others_go_on(full: tuple[Any, Callable[[], None]]) -> None:
    front_end, _ = full
    with closing(PlasmaConnection(front_end.socket)) as client:
        begin = time.monotonic()
        assert client.get([oid(0)], TIMEOUT_MS) == [None]
        assert TIMEOUT_MS / 1000 <= time.monotonic() - begin < SOON_SECONDS
        assert client.contains(oid(0))  # it is not lost, and says so
        client.create_and_seal(oid(SPILLED), b"small", b"")
        assert data_of(client, oid(SPILLED), 0) == b"small"


def test_gets_that_wait_return_once_there_is_room(full: tuple[Any, Callable[[], None]]) -> None:
    front_end, make_room = full
    values: dict[int, bytes | None] = {}

    def get(getter: int) -> None:
        with closing(PlasmaConnection(front_end.socket)) as client:
            values[getter] = data_of(client, oid(getter % SPILLED), FOREVER_MS)

    getters = [threading.Thread(target=get, args=(getter,)) for getter in range(GETTERS)]
    for thread in getters:
        thread.start()
    with closing(PlasmaConnection(front_end.socket)) as client:
        # Longer than one try of the front end to bring it back.
        assert client.get([oid(0)], 12_000) == [None]
        assert not values
        make_room()
        for thread in getters:
            thread.join(60)
        assert values == {getter: content(getter % SPILLED) for getter in range(GETTERS)}
        for number in range(SPILLED):
            assert client.delete(oid(number)) in (OK, IN_USE)


def test_who_waits_for_a_spilled_object_does_not_hold_up_who_deletes(full: tuple[Any, Callable[[], None]]) -> None:
    front_end, make_room = full

    def get(getter: int) -> None:
        with closing(PlasmaConnection(front_end.socket)) as client:
            client.get([oid(getter % SPILLED)], FOREVER_MS)

    getters = [threading.Thread(target=get, args=(getter,)) for getter in range(GETTERS)]
    for thread in getters:
        thread.start()
    with closing(PlasmaConnection(front_end.socket)) as client:
        begin = time.monotonic()
        assert client.delete(oid(SPILLED + 1)) == NONEXISTENT  # which another thread of the front end asks the daemon
        assert not client.contains(oid(SPILLED + 1))
        assert time.monotonic() - begin < SOON_SECONDS
    make_room()
    for thread in getters:
        thread.join(60)
        assert not thread.is_alive()
