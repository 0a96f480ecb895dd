"""Clusters whose directory is a server that stops, dies, and comes back empty."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import DirectoryUnavailable, ObjectNotFound
from entrepot_io.values import get_value, put_value

sys.path.insert(0, str(Path(__file__).parent.parent / "directory" / "servers"))

from directory_servers import Server, running

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture(params=["etcd", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for one test."""
    with running(request.param) as started:
        yield started


def test_a_directory_that_is_away_and_comes_back_empty(
    cluster: Any, server: Server, wait_until: Callable[..., None]
) -> None:
    cluster.url = server.url("test")
    a, b = cluster.host("a"), cluster.host("b")
    oids = [a.store.put(number, name=f"number {number}") for number in range(100)]
    assert b.store.get_by_name("number 3", timeout=60) == 3
    reference = put_value(a.store, "value", "of a")
    third = put_value(a.store, "third", "of a, as well")
    unread = put_value(a.store, "unread", "of a, too")
    assert get_value(reference, address=b.address) == "of a"

    server.stop()
    assert b.store.get(b.store.put("local")) == "local"
    assert get_value(third, address=b.address) == "of a, as well"  # its store is known
    assert get_value(reference, address=b.address) == "of a"
    began = time.monotonic()
    with pytest.raises(ObjectNotFound, match="could not be fetched from another one"):
        b.store.get(oids[50])
    with pytest.raises(DirectoryUnavailable):
        b.store.locate(oids[50])
    assert time.monotonic() - began < 60
    server.go_on()
    wait_until(lambda: cluster.instances() == {"a": True, "b": True}, "both to be registered again")
    assert b.store.get(oids[51], timeout=60) == 51

    server.kill()
    with pytest.raises(ObjectNotFound):
        b.store.get(oids[52])
    server.empty()
    server.start()
    wait_until(lambda: cluster.instances() == {"a": True, "b": True}, "both to be registered again", 90)
    assert [b.store.get(oid, timeout=60) for oid in oids] == list(range(100))
    assert get_value(unread, address=b.address) == "of a, too"
