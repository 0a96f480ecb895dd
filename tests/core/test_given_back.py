"""Empty memory is returned to the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from memory_files import memfds

MIB = 1 << 20
WARM = 32 * MIB
USED = 160 * MIB


def segments_of(pid: int) -> int:
    """Bytes of payload memory that a process holds."""
    return memfds(pid, "entrepot-segment-")


def test_what_was_deleted_goes_back_after_a_calm_while(
    new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """Small and large segments are returned, and later puts still work."""
    daemon = new_daemon("256MiB", "--warm-bytes", "32MiB", "--give-back-after", "1s")
    with entrepot.connect(daemon.address, scope="tests") as store:
        for size in (16 * MIB, 80 * MIB):
            oids = [store.put(np.zeros(size, np.uint8)) for _ in range(USED // size)]
            status = store.status()
            assert segments_of(status["pid"]) >= USED
            for oid in oids:
                store.delete(oid)
            both = (status["pid"], status["keeper_pid"])
            wait_until(lambda: all(segments_of(pid) <= 2 * WARM for pid in both), "the memory to go back")  # noqa: B023
        value = np.arange(10 * MIB, dtype=np.uint8)
        assert np.array_equal(store.get(store.put(value)), value)
