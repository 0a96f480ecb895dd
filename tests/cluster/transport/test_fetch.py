"""Objects fetched from one real store into another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import matrix_values
import numpy as np
import pytest
from entrepot import ObjectExists, ObjectNotFound, StoreFull, raw_objects
from entrepot.errors import EntrepotError, InvalidArgument, Timeout
from entrepot_cluster.transport.endpoints import FetchOutcome, Held, Wanted
from entrepot_cluster.transport.fetching import Fetch, fetch
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import PinnedObject, StoreSink, StoreSource

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]


def wanted(ids: Sequence[entrepot.ObjectID]) -> list[Wanted]:
    """Any generation of these."""
    return [Wanted(oid.binary) for oid in ids]


def errors(outcomes: Sequence[FetchOutcome]) -> list[EntrepotError]:
    """Of those that failed."""
    return [outcome.error for outcome in outcomes if outcome.error is not None]


@pytest.fixture(params=["tcp", "ucx"])
def transport(request: pytest.FixtureRequest) -> str:
    """Every test of this module runs with both."""
    return str(request.param)


@pytest.fixture
def peer(serve: Serve, connect: Connect) -> PeerConnections:
    """Connections to a server of the source."""
    return connect(serve().address)


def test_values_of_every_codec(source: entrepot.Store, sink: entrepot.Store, peer: PeerConnections) -> None:
    builders = {name: b for name, b in matrix_values.BUILDERS.items() if matrix_values.buildable(b) and not b.module}
    assert len(builders) >= 30
    ids = {name: source.put(builder.build()) for name, builder in builders.items()}
    assert not errors(fetch(peer, wanted(list(ids.values())), StoreSink(sink)))
    for name, oid in ids.items():
        original, copy = raw_objects.read(source, oid), raw_objects.read(sink, oid)
        assert copy.tree == original.tree, name
        assert [bytes(buffer) for buffer in copy.buffers] == [bytes(buffer) for buffer in original.buffers], name


def test_large_objects_in_pieces(source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect) -> None:
    generator = np.random.default_rng(3)
    value = {str(n): generator.integers(0, 255, n, dtype=np.uint8) for n in (30_000_001, 5, 4 << 20, 70_000, 0, 1)}
    oid = source.put(value)
    server = serve()
    peer = connect(server.address)
    (outcome,) = fetch(peer, [Wanted(oid.binary)], StoreSink(sink))
    nbytes = sum(buffer.nbytes for buffer in raw_objects.read(source, oid).buffers)  # without what is in the tree
    assert (outcome.error, outcome.nbytes, outcome.existed) == (None, nbytes, False)
    copy = sink.get(oid)
    assert all((copy[name] == array).all() for name, array in value.items())
    assert server.connections == 4  # it was striped
    peer.ping()  # behind the notice that everything has arrived, on the same connection or another
    assert server.pinned_bytes == 0


def test_thousands_of_objects(source: entrepot.Store, sink: entrepot.Store, peer: PeerConnections) -> None:
    ids = [source.put(np.full(size, n)) for n in range(1000) for size in (1, 300, 3000)]
    outcomes = fetch(peer, wanted(ids), StoreSink(sink))
    assert not errors(outcomes)
    assert [outcome.id for outcome in outcomes] == [oid.binary for oid in ids]
    for position, oid in enumerate(ids):
        assert sink.get(oid)[-1] == position // 3


def test_each_object_has_an_outcome_by_itself(
    source: entrepot.Store, sink: entrepot.Store, peer: PeerConnections
) -> None:
    small, large, gone = source.put(b"x" * 100), source.put(np.arange(500_000)), entrepot.ObjectID.random()
    generation = raw_objects.read(source, large).generation
    asked = [
        Wanted(gone.binary),
        Wanted(small.binary),
        Wanted(large.binary, generation + 1),
        Wanted(large.binary, generation),
    ]
    missing, first, other, last = fetch(peer, asked, StoreSink(sink))
    assert isinstance(missing.error, ObjectNotFound)
    assert gone.hex() in str(missing.error)
    assert (first.error, last.error, last.generation) == (None, None, generation)
    assert isinstance(other.error, ObjectNotFound)
    assert f"has generation {generation}" in str(other.error)
    assert f"not generation {generation + 1}" in str(other.error)
    assert sink.get(large)[-1] == 499_999


def test_nothing_to_fetch_and_bad_ids(sink: entrepot.Store, peer: PeerConnections) -> None:
    assert fetch(peer, [], StoreSink(sink)) == []
    with pytest.raises(InvalidArgument, match="20 bytes, not 3"):
        fetch(peer, [Wanted(b"abc")], StoreSink(sink))


def test_what_is_there_already(source: entrepot.Store, sink: entrepot.Store, peer: PeerConnections) -> None:
    ids = [source.put(np.arange(n)) for n in (10, 5000, 500_000)]
    other = [sink.put(np.arange(n) + 1, id=oid, replace=True) for n, oid in zip((10, 5000, 500_000), ids, strict=True)]
    assert other == ids
    failed = errors(fetch(peer, wanted(ids), StoreSink(sink)))
    assert [type(error) for error in failed] == [ObjectExists] * 3
    assert sink.get(ids[2])[0] == 1
    assert not errors(fetch(peer, wanted(ids), StoreSink(sink, replace=True)))
    assert [sink.get(oid)[0] for oid in ids] == [0, 0, 0]
    again = fetch(peer, wanted(ids[:2]), StoreSink(sink))
    assert [outcome.existed for outcome in again] == [True, True]


class Refusing(StoreSink):
    """A sink that has some objects, and no room for others."""

    def __init__(self, store: entrepot.Store, held: bytes, full: bytes) -> None:
        super().__init__(store)
        self.held, self.full = held, full

    def allocate(self, header: Any) -> Any:
        """Memory, unless."""
        if header.id == self.full:
            raise StoreFull("no room for this one")
        return None if header.id == self.held else super().allocate(header)


def test_a_sink_that_refuses(source: entrepot.Store, sink: entrepot.Store, peer: PeerConnections) -> None:
    held, full, plain = (source.put(np.arange(1_000_000) + n) for n in range(3))
    outcomes = fetch(peer, wanted([held, full, plain]), Refusing(sink, held.binary, full.binary))
    assert [outcome.existed for outcome in outcomes] == [True, False, False]
    assert [f"{error}" for error in errors(outcomes)] == ["no room for this one"]
    assert sink.get(plain)[0] == 2


def test_a_store_that_is_full(
    source: entrepot.Store, start_daemon: Callable[..., Any], serve: Serve, connect: Connect
) -> None:
    # A sink waits for room for 4 seconds for each object, and reads nothing meanwhile.
    peer = connect(serve(progress_seconds=30.0).address, progress_seconds=30.0)
    ids = [source.put(np.arange(4_000_000) + n) for n in range(4)]
    small = source.put(b"small")
    with entrepot.connect(start_daemon("64MiB").address) as sink:
        outcomes = fetch(peer, wanted([*ids, small]), StoreSink(sink))
        failed = errors(outcomes)
        assert {type(error) for error in failed} == {StoreFull}
        assert 0 < len(failed) < 5
        assert outcomes[-1].error is None
        for outcome in outcomes:
            assert bool(sink.exists(entrepot.ObjectID(outcome.id))) == (outcome.error is None)


def test_many_threads_share_a_peer(
    source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    ids = [source.put(np.full(n % 7 * 60_000 + 1, n)) for n in range(120)]
    peer = connect(serve().address, connections=3, max_connections=6)

    def fetch_some(begin: int) -> list[EntrepotError]:
        return errors(fetch(peer, wanted(ids[begin::8]), StoreSink(sink)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fetch_some, range(8))) == [[]] * 8
    for n, oid in enumerate(ids):
        assert (sink.get(oid) == n).all()


class Waiting(StoreSource):
    """A source whose objects take time to open."""

    def __init__(self, store: entrepot.Store) -> None:
        super().__init__(store)
        self.go_on = threading.Event()
        self.asked = threading.Event()

    def open(self, oid: bytes, generation: int | None) -> PinnedObject:
        """Pin an object, when told."""
        self.asked.set()
        self.go_on.wait(30)
        return super().open(oid, generation)


def test_a_slow_store_is_waited_for(
    source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    oid = source.put(np.arange(100))
    slow = Waiting(source)
    peer = connect(serve(slow).address, progress_seconds=3.0)
    timer = threading.Timer(5.0, slow.go_on.set)  # longer than the time limit for progress
    timer.start()
    assert not errors(fetch(peer, wanted([oid]), StoreSink(sink)))
    timer.join()


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_fetch_that_ends_early_gives_everything_back(
    how: str, source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    large = source.put(np.arange(2_000_000))
    slow = Waiting(source)
    peer = connect(serve(slow).address)
    used = sink.status()["used_bytes"]
    if how == "timeout":
        outcomes = fetch(peer, wanted([large]), StoreSink(sink), timeout=0.3)
    else:
        work = Fetch(peer, wanted([large]), StoreSink(sink))

        def cancel() -> None:
            assert slow.asked.wait(30)
            work.cancel()

        threading.Thread(target=cancel).start()
        outcomes = work.run()
    slow.go_on.set()
    assert isinstance(outcomes[0].error, Timeout)
    assert ("in 0.3 s" if how == "timeout" else "cancelled") in str(outcomes[0].error)
    assert sink.status()["used_bytes"] == used
    assert not errors(fetch(peer, wanted([large]), StoreSink(sink)))


def test_pinned_bytes_are_bounded(source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect) -> None:
    ids = [source.put(np.arange(500_000) + n) for n in range(8)]
    server = serve(max_pinned_bytes=5_000_000)  # one of them
    peer = connect(server.address)
    assert not errors(fetch(peer, wanted(ids), StoreSink(sink)))
    assert server.pinned_bytes <= 5_000_000
    assert all(sink.get(oid)[0] == n for n, oid in enumerate(ids))


class Requests:
    """Does what peers ask, in a store."""

    def __init__(self, store: entrepot.Store) -> None:
        self.store = store
        self.pulled: list[tuple[Sequence[Wanted], str, str]] = []
        self.discarded: list[tuple[Sequence[Wanted], str, int]] = []

    def have(self, wanted: Sequence[Wanted]) -> list[Held | None]:
        """What is here."""
        held: list[Held | None] = []
        for item in wanted:
            generation = raw_objects.generation_of(self.store, entrepot.ObjectID(item.id))
            size = 0 if generation is None else raw_objects.size_of(self.store, entrepot.ObjectID(item.id))
            held.append(None if generation is None else Held(generation, size))
        return held

    def pull(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """Fail for every second one."""
        self.pulled.append((wanted, address, instance))
        return [ObjectNotFound("not there") if n % 2 else None for n in range(len(wanted))]

    def replicate(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """Fail for all."""
        self.pulled.append((wanted, address, instance))
        return [ObjectNotFound("not there")] * len(wanted)

    def discard_copies(self, lives: Sequence[Wanted], instance: str, role: int) -> list[bool]:
        """Only the first is there."""
        self.discarded.append((lives, instance, role))
        return [n == 0 for n in range(len(lives))]

    def discard(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Delete."""
        return [bool(self.store.delete(entrepot.ObjectID(item.id))) for item in wanted]


def test_control_requests(source: entrepot.Store, serve: Serve, connect: Connect) -> None:
    requests = Requests(source)
    peer = connect(serve(requests=requests).address)
    oid, gone = source.put(np.arange(5000)), entrepot.ObjectID.random()
    generation = raw_objects.read(source, oid).generation
    assert peer.ping() < 5
    assert peer.have(wanted([gone, oid])) == [None, Held(generation, 40_000)]
    asked = [Wanted(oid.binary, 3), Wanted(gone.binary)]
    pulled = peer.pull(asked, "10.0.0.1:7421", "abc")
    assert pulled[0] is None
    assert isinstance(pulled[1], ObjectNotFound)
    assert requests.pulled == [(asked, "10.0.0.1:7421", "abc")]
    assert all(isinstance(error, ObjectNotFound) for error in peer.replicate(asked, "10.0.0.1:7421", "abc"))
    assert peer.discard_copies(asked, "abc", 1) == [True, False]
    assert requests.discarded == [(asked, "abc", 1)]
    peer.discard(wanted([oid]))
    assert peer.have(wanted([oid])) == [None]
    with pytest.raises(InvalidArgument, match="1 to 65536 objects, not 0"):
        peer.have([])


def test_a_server_without_requests_refuses_them(serve: Serve, connect: Connect) -> None:
    with pytest.raises(InvalidArgument, match="knows no request 'have'"):
        connect(serve().address).have([Wanted(bytes(20))])
