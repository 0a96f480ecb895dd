"""A store has memory only while it is used, and little before it is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
from entrepot._cli.daemon import format_status

sys.path.insert(0, str(Path(__file__).parent))

from memfd_usage import memfd_bytes

MIB = 1 << 20
WARM_BYTES = 32 * MIB
AHEAD_BYTES = 64 * MIB  # without --warm-bytes
USED_BYTES = 160 * MIB


def segment_bytes(pid: int) -> int:
    """Bytes of payload memory that a process holds."""
    return memfd_bytes(pid, "entrepot-segment-")


def test_an_idle_store_has_little_memory(new_daemon: Callable[..., Any]) -> None:
    """It makes 64 MiB ahead of demand, and says that this is all."""
    daemon = new_daemon("1GiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        store.wait_provisioned()
        status = store.status()
        assert status["provision_target_bytes"] == status["warm_bytes"] == AHEAD_BYTES
        assert segment_bytes(status["pid"]) == segment_bytes(status["keeper_pid"]) == AHEAD_BYTES
        assert "64.0 MiB ahead of demand; no more" in format_status(status)


def test_free_memory_follows_what_was_used(new_daemon: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    """What a large value has used is kept for the next one, which takes it, and is given back when none comes."""
    daemon = new_daemon("1GiB", "--give-back-after", "5s")
    value = np.zeros(256 * MIB, np.uint8)
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
        oid = store.put(value)
        assert segment_bytes(pid) <= value.nbytes + 2 * AHEAD_BYTES
        store.delete(oid)
        status = store.status()
        assert status["kept_target_bytes"] >= value.nbytes
        assert "because so much more than now was in use within the last 5 s" in format_status(status)
        assert segment_bytes(pid) >= value.nbytes
        oid = store.put(value)
        assert segment_bytes(pid) <= value.nbytes + 2 * AHEAD_BYTES, "it took the memory of the first one"
        store.delete(oid)
        wait_until(lambda: segment_bytes(pid) <= 2 * AHEAD_BYTES, "the memory to go back")
        wait_until(lambda: store.status()["kept_target_bytes"] == 0, "the demand to be forgotten")


def test_memory_that_is_never_given_back_is_kept(new_daemon: Callable[..., Any]) -> None:
    daemon = new_daemon("256MiB", "--give-back-after", "0")
    with entrepot.connect(daemon.address, scope="tests") as store:
        store.delete(store.put(np.zeros(100 * MIB, np.uint8)))
        status = store.status()
        assert segment_bytes(status["pid"]) >= 100 * MIB
        assert "it is never given back" in format_status(status)


def test_memory_of_deleted_objects_is_returned_after_a_quiet_period(
    new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """Small and large segments are returned, and later puts still work."""
    daemon = new_daemon("256MiB", "--warm-bytes", "32MiB", "--give-back-after", "1s")
    with entrepot.connect(daemon.address, scope="tests") as store:
        for size in (16 * MIB, 80 * MIB):
            oids = [store.put(np.zeros(size, np.uint8)) for _ in range(USED_BYTES // size)]
            status = store.status()
            assert segment_bytes(status["pid"]) >= USED_BYTES
            for oid in oids:
                store.delete(oid)
            pids = (status["pid"], status["keeper_pid"])
            wait_until(lambda: all(segment_bytes(pid) <= 2 * WARM_BYTES for pid in pids), "the memory to go back")  # noqa: B023
        value = np.arange(10 * MIB, dtype=np.uint8)
        assert np.array_equal(store.get(store.put(value)), value)
