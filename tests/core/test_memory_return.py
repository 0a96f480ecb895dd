"""Empty memory is returned to the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from memfd_usage import memfd_bytes

MIB = 1 << 20
WARM_BYTES = 32 * MIB
USED_BYTES = 160 * MIB


def segment_bytes(pid: int) -> int:
    """Bytes of payload memory that a process holds."""
    return memfd_bytes(pid, "entrepot-segment-")


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
