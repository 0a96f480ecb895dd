"""Memory control groups around the store and the front end: what Plasma clients have sealed stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import entrepot
import pytest
from control_groups import ControlGroup, NoControlGroup, control_group

from benchmarks.harness.plasma_connection import PlasmaConnection

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
STORE_MIB = 96
ARENA_MIB = 64
OBJECT_BYTES = 4 * MIB
OBJECTS = 2 * STORE_MIB // 4  # twice what memory holds
SMALL, SMALL_BYTES = 50, 10_000
WAIT_MS = 30_000


def oid(number: int) -> bytes:
    return b"control-group-%06d" % number


def content(number: int) -> bytes:
    return (b"%d," % number * OBJECT_BYTES)[:OBJECT_BYTES]


def is_intact(client: PlasmaConnection, number: int, nbytes: int = OBJECT_BYTES) -> bool:
    (value,) = client.get([oid(number)], WAIT_MS)
    is_equal = value is not None and value[0] == content(number)[:nbytes]
    client.release(oid(number))
    return is_equal


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    try:
        with control_group("memory", "plasma") as created:
            yield created
    except NoControlGroup as error:
        pytest.skip(f"no control group can be made here: {error}")


def test_twice_the_memory_fits_into_a_group_of_both(
    group: ControlGroup, tmp_path: Path, new_daemon: Callable[..., Any], new_front_end: Callable[..., Any]
) -> None:
    daemon = new_daemon(f"{STORE_MIB}MiB", "--spill-path", str(tmp_path / "spill"))
    front_end = new_front_end(ARENA_MIB * MIB, store=daemon)
    with entrepot.connect(daemon.address) as store, closing(PlasmaConnection(front_end.socket)) as client:
        status = store.status()
        pids = [status["keeper_pid"], status["pid"], front_end.process.pid]
        for pid in pids:
            group.add(pid)
        # Memory is charged to whoever touches it first: with objects that travel in messages, to the front end.
        group.kill_above(group.memory_used() + (STORE_MIB + 64) * MIB)
        for number in range(OBJECTS):
            client.create_and_seal(oid(number), content(number), b"")
        assert all(is_intact(client, number) for number in range(OBJECTS))
        after = store.status()
        assert [after["keeper_pid"], after["pid"], front_end.process.pid] == pids  # nobody was killed
        assert front_end.process.poll() is None


def test_what_is_sealed_outlives_a_front_end_that_the_kernel_kills(
    group: ControlGroup, tmp_path: Path, new_daemon: Callable[..., Any], new_front_end: Callable[..., Any]
) -> None:
    daemon = new_daemon(f"{STORE_MIB}MiB", "--spill-path", str(tmp_path / "spill"))
    front_end = new_front_end(ARENA_MIB * MIB, store=daemon)
    group.add(front_end.process.pid)
    group.kill_above(group.memory_used() + 16 * MIB)
    with closing(PlasmaConnection(front_end.socket)) as client:
        for number in range(SMALL):
            client.create_and_seal(oid(number), content(number)[:SMALL_BYTES], b"")
        with pytest.raises(ConnectionError):  # the message alone is more than the front end may have
            client.create_and_seal(oid(SMALL), bytes(ARENA_MIB // 2 * MIB), b"")
    assert front_end.process.wait(60) == -9
    front_end.start()  # outside the group
    with closing(PlasmaConnection(front_end.socket)) as client:
        assert all(is_intact(client, number, SMALL_BYTES) for number in range(SMALL))
        assert client.get([oid(SMALL)], 0) == [None]
