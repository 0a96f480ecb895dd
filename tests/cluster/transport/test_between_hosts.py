"""Fetches between hosts of their own: over a real network, held to a rate, with packets lost and directions cut."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import entrepot
import numpy as np
import pytest
from isolated_hosts import Host, refusal, two_hosts

pytestmark = pytest.mark.skipif(bool(refusal()), reason=refusal())

FETCH = """
import json, sys, time
import entrepot
from entrepot_cluster.transport.endpoints import Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.store_endpoints import StoreSink
with (
    entrepot.connect(sys.argv[1], session="test") as store,
    PeerConnections(
        sys.argv[2],
        Identity("tests", "fetching"),
        security=TransportSecurity(insecure=True),
        progress_seconds=3.0,
        transport=sys.argv[3],
    ) as peer,
):
    for line in sys.stdin:
        wanted = [Wanted(bytes.fromhex(text)) for text in json.loads(line)]
        begin = time.monotonic()
        errors = [outcome.error.code if outcome.error else "" for outcome in fetch(peer, wanted, StoreSink(store))]
        print(json.dumps([errors, time.monotonic() - begin]), flush=True)
"""


class Fetching:
    """A process on a host that fetches what it is told."""

    def __init__(self, host: Host, store: str, peer: str, transport: str) -> None:
        command = [sys.executable, "-c", FETCH, store, peer, transport]
        self._process = host.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, ids: list[entrepot.ObjectID]) -> None:
        """Start a fetch."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(oid) for oid in ids]) + "\n")
        self._process.stdin.flush()

    def end(self) -> tuple[set[str], float]:
        """The codes of the errors, empty for none, and how long it took."""
        assert self._process.stdout is not None
        errors, seconds = json.loads(self._process.stdout.readline())
        return set(errors), seconds


@pytest.fixture
def hosts(
    source: entrepot.Store, sink: entrepot.Store, transport: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Host, Host, Fetching]]:
    """The host that fetches, the host that serves the source, and the process on the first."""
    # The hosts share a kernel, so UCX would find that they share memory, and that each reaches the other's loopback.
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("UCX_NET_DEVICES", "eth0")
    with two_hosts() as (near, far):
        program = str(Path(__file__).with_name("serving_process.py"))
        command = [sys.executable, program, source.address, f"{far.address}:7421", transport]
        server = far.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == f"{far.address}:7421\n"
        yield near, far, Fetching(near, sink.address, f"{far.address}:7421", transport)


def _objects(source: entrepot.Store) -> list[entrepot.ObjectID]:
    small = [source.put(np.full(2000, n)) for n in range(300)]
    return [*small, source.put(np.arange(4_000_000))]


both = pytest.mark.parametrize("transport", ["tcp", "ucx"])


@pytest.mark.exhaustive
@both
def test_a_partition_in_each_direction(
    source: entrepot.Store, sink: entrepot.Store, hosts: tuple[Host, Host, Fetching]
) -> None:
    near, far, fetching = hosts
    ids = _objects(source)
    for cut in (near.block_from, near.block_to):
        cut(far)
        fetching.begin(ids)
        codes, seconds = fetching.end()
        assert codes == {"timeout"}
        assert seconds < 10
        near.heal()
    fetching.begin(ids)
    assert fetching.end()[0] == {""}


@pytest.mark.exhaustive
@both
def test_a_partition_while_bytes_are_on_their_way(
    source: entrepot.Store, hosts: tuple[Host, Host, Fetching], wait_until: Callable[..., None]
) -> None:
    near, far, fetching = hosts
    oid = source.put(np.arange(8_000_000))
    far.set_rate("200mbit")  # 2.5 s

    before = _received_bytes(near)
    fetching.begin([oid])
    wait_until(lambda: _received_bytes(near) - before > 5_000_000, "the first bytes")
    near.block_from(far)
    assert fetching.end()[0] == {"timeout"}
    near.heal()
    far.set_rate("")
    fetching.begin([oid])
    assert fetching.end()[0] == {""}


def _received_bytes(host: Host) -> int:
    for line in host.run(["cat", "/proc/net/dev"]).splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "eth0":
            return int(values.split()[0])
    raise AssertionError("no eth0")


@both
def test_lost_packets(source: entrepot.Store, sink: entrepot.Store, hosts: tuple[Host, Host, Fetching]) -> None:
    near, _, fetching = hosts
    ids = _objects(source)
    near.lose(2)
    fetching.begin(ids)
    assert fetching.end()[0] == {""}
    assert all((sink.get(oid) == n).all() for n, oid in enumerate(ids[:-1]))
    assert sink.get(ids[-1])[-1] == 3_999_999
