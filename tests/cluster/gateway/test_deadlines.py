"""A caller's timeout bounds the whole call, over gateway and directory; and a directory that hangs holds up nobody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot.errors import DirectoryUnavailable, EntrepotError, Timeout

sys.path.insert(0, str(Path(__file__).parents[1] / "directory/servers"))

from directory_servers import Server, running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def server(cluster: Any) -> Iterator[Server]:
    """An etcd that has the cluster's directory."""
    with running("etcd") as server:
        cluster.url = server.url("deadlines")
        yield server
        server.go_on()
        cluster.stop()  # while the directory is there


def put(host: Any, index: int) -> None:
    host.store.collection("rows").put(np.full(100, index), index=index)


def test_a_timeout_bounds_calls_while_the_directory_hangs(server: Server, cluster: Any) -> None:
    a, b = [cluster.host(name, "--lease-seconds", "600") for name in ("a", "b")]  # nobody finds out by renewing it
    put(a, 0)
    put(b, 1)
    oid = a.store.put("value")
    server.stop()
    with pytest.raises(Timeout, match=r"lacks 1 of 2 members, at index 1; host .* did not answer"):
        a.store.collection("rows").seal(2, timeout=1)
    with pytest.raises(Timeout):
        a.store.migrate(oid, "b", timeout=1)
    with pytest.raises(Timeout):
        a.store.publish(oid, timeout=1)
    with pytest.raises(Timeout):
        a.store.locate(oid, timeout=1)
    assert a.store.get(oid, remote=False) == "value"
    server.go_on()
    assert len(a.store.collection("rows").seal(2, timeout=60)) == 2


def test_a_directory_that_hangs_holds_up_nobody(server: Server, cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b = cluster.host("a"), cluster.host("b")
    put(a, 0)
    put(b, 1)
    server.stop()
    for host in (a, b):
        wait_until(lambda host=host: "directory is away" in host.log, "the gateway to find out")
    for _ in range(10):  # each of which would otherwise take several timeouts of the directory
        with pytest.raises(DirectoryUnavailable, match="does not respond at the moment"):
            a.store.collection("rows").seal(2)
    server.go_on()

    def is_sealed() -> bool:
        try:
            return len(a.store.collection("rows").seal(2)) == 2
        except EntrepotError:
            return False

    wait_until(is_sealed, "the directory to be back")
    assert len(b.store.get_by_name("rows", timeout=60)) == 2
