"""What the extension does with many objects at a time: they are pinned, described and sent."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import entrepot
import numpy as np
import pytest
from entrepot import _core, raw_objects
from entrepot.errors import ObjectNotFound, StoreUnavailable, Timeout
from entrepot_cluster.transport import frames
from entrepot_cluster.transport.endpoints import FetchOutcome, ObjectHeader, Wanted
from entrepot_cluster.transport.fetching import CHUNK_OBJECTS, fetch
from entrepot_cluster.transport.frames import Outcome
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import PinnedObject, StoreSink, StoreSource

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]
VALUES = [b"short", np.arange(5000), [np.arange(3000), np.arange(40_000.0)], None]


@pytest.fixture
def pinned(source: entrepot.Store) -> list[PinnedObject]:
    """Objects with none, one and several buffers."""
    ids = [source.put(value) for value in VALUES]
    present = StoreSource(source).open_present([Wanted(oid.binary) for oid in ids])
    return [each for each in present if each is not None]


def test_only_what_was_asked_for_is_pinned(source: entrepot.Store) -> None:
    oid = source.put(np.arange(3000), name="numbers")
    first = source.generation_of(oid)
    assert first is not None
    missing = entrepot.ObjectID.random()
    asked = [Wanted(oid.binary), Wanted(oid.binary, first), Wanted(oid.binary, first + 1), Wanted(missing.binary)]
    present = StoreSource(source).open_present(asked)
    assert [each is not None for each in present] == [True, True, False, False]
    assert present[0] is not None
    assert present[0].generation == first
    assert present[0].nbytes == 24_000
    assert bytes(present[0].buffers[0]) == np.arange(3000).tobytes()
    present[0].close()
    assert present[0].buffers == []


def test_records_are_those_of_the_protocol(pinned: list[PinnedObject]) -> None:
    assert len(pinned) == len(VALUES)
    items = [(7 + number, each.pinned, each.tree + b"x") for number, each in enumerate(pinned)]
    records, crc = _core.pack_inline_records(items, 0)
    expected, running = b"", 0
    for number, each in enumerate(pinned):
        for buffer in each.buffers:
            running = _core.crc32c(buffer, running)
        lengths = tuple(buffer.nbytes for buffer in each.buffers)
        header = ObjectHeader(bytes(20), each.generation, each.tree + b"x", lengths)
        expected += frames.pack_record(7 + number, Outcome.INLINE, header, running)
    assert records == expected
    assert crc == running
    parsed = frames.parse_records(records, [Wanted(bytes(20))] * 11, sum(each.nbytes for each in pinned))
    assert [(record.number, record.header.tree) for record in parsed if record.header is not None] == [
        (number, tree) for number, _, tree in items
    ]
    assert parsed[-1].crc == crc


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection, with small buffers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.socket()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield near, far


def test_everything_is_sent_to_a_peer_that_reads_little_at_a_time(
    pinned: list[PinnedObject], sockets: tuple[socket.socket, socket.socket]
) -> None:
    near, far = sockets
    link = Link(near, "the peer", 30)
    objects = pinned * 40  # more buffers than fit in one call
    expected = b"head" + b"".join(bytes(buffer) for each in objects for buffer in each.buffers)
    sender = threading.Thread(target=link.send_objects, args=(b"head", objects))
    sender.start()
    received = bytearray()
    while len(received) < len(expected):
        part = far.recv(7777)
        assert part
        received += part
    sender.join(30)
    assert not sender.is_alive()
    assert received == expected
    assert link.sent_bytes == len(expected)


def test_a_peer_that_does_not_read_is_given_up(
    pinned: list[PinnedObject], sockets: tuple[socket.socket, socket.socket]
) -> None:
    link = Link(sockets[0], "the peer", 0.2)
    with pytest.raises(Timeout, match=r"the peer has not read a byte for 0\.2 s"):
        link.send_objects(b"head", pinned * 200)


def test_a_connection_that_has_ended_is_reported(
    pinned: list[PinnedObject], sockets: tuple[socket.socket, socket.socket]
) -> None:
    near, far = sockets
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    with pytest.raises(StoreUnavailable, match="the connection to the peer has ended"):
        Link(near, "the peer", 5).send_objects(b"head", pinned * 200)


def test_many_small_objects_with_others_among_them(
    source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    count = CHUNK_OBJECTS + 50
    ids = [source.put(np.arange(number, number + 50)) for number in range(count)]
    missing, large = entrepot.ObjectID.random(), source.put(np.arange(200_000))
    asked = [*ids[:100], missing, large, *ids[100:]]
    outcomes: list[FetchOutcome] = fetch(
        connect(serve().address), [Wanted(oid.binary) for oid in asked], StoreSink(sink)
    )
    failed = {outcome.id: type(outcome.error) for outcome in outcomes if outcome.error is not None}
    assert failed == {missing.binary: ObjectNotFound}
    assert [outcome.id for outcome in outcomes] == [oid.binary for oid in asked]
    assert all((sink.get(oid) == np.arange(number, number + 50)).all() for number, oid in enumerate(ids))
    assert sink.get(large)[-1] == 199_999
    present = raw_objects.generations_of(sink, asked)
    assert [generation is None for generation in present] == [oid == missing for oid in asked]
