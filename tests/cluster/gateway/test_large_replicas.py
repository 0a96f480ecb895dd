"""Large objects of a session with replicas, which take their time, do not hold up small ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "network"))
sys.path.insert(0, str(Path(__file__).parents[1] / "directory/servers"))

from directory_servers import free_port
from tcp_relay import TcpRelay

pytestmark = pytest.mark.timeout(180)
LARGE_COUNT, SMALL_COUNT = 6, 100  # more large ones than are sent at a time


def test_small_objects_pass_large_ones(cluster: Any, wait_until: Callable[..., None]) -> None:
    port = free_port()
    with TcpRelay(f"127.0.0.1:{port}") as relay:
        a = cluster.host("a", "--listen", f"127.0.0.1:{port}", "--advertise", relay.address)
        b = cluster.host("b")

        def at_b(oids: list[entrepot.ObjectID]) -> int:
            return sum(1 for oid in oids if b.store.exists(oid))

        with entrepot.connect(a.address, session="run", cluster=True, replicas=2) as store:
            relay.hold_over(
                512 << 10
            )  # so that all connections of a fetch, asked twice, do not suffice for a large one
            large = [store.put(np.full(8 << 20, number, dtype=np.uint8)) for number in range(LARGE_COUNT)]
            wait_until(lambda: relay.held > 0, "a large one to be on its way, where it stops")
            small = [store.put(number) for number in range(SMALL_COUNT)]
            store.publish(*small, wait_for_replicas=True, timeout=120)
            assert at_b(small) == SMALL_COUNT
            assert at_b(large) == 0
            relay.hold_over(None)
            wait_until(lambda: at_b(large) == LARGE_COUNT, "the large ones to follow", 90)
            wait_until(lambda: store.replica_status() == (LARGE_COUNT + SMALL_COUNT, 0, 0), "the status", 60)
