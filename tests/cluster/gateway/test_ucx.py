"""Gateways that use UCX, and one that does not."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.timeout(180)


def test_objects_travel_over_ucx_and_tcp_in_one_cluster(cluster: Any) -> None:
    a = cluster.host("a", "--transport", "ucx")
    b = cluster.host("b", "--transport", "ucx")
    c = cluster.host("c")
    large, small = np.arange(3_000_000), [{"number": number} for number in range(500)]
    ids = [a.store.put(large), *a.store.put_many(small)]
    for oid in ids:
        a.store.publish(oid)
    for host in (b, c):
        assert (host.store.get(ids[0]) == large).all()
        assert host.store.get_many(ids[1:]) == small


def test_a_killed_gateway_is_reached_again_after_its_restart(cluster: Any) -> None:
    a = cluster.host("a", "--transport", "ucx")
    b = cluster.host("b", "--transport", "ucx")
    first, second = a.store.put(np.arange(1_000_000)), a.store.put(np.arange(2_000_000))
    a.store.publish(first)
    a.store.publish(second)
    assert b.store.get(first)[-1] == 999_999
    a.signal_gateway(signal.SIGKILL)
    a.wait_gateway()
    a.start_gateway()
    assert b.store.get(second, timeout=60)[-1] == 1_999_999
