"""Compression on slow links: what is sent packed, what is not, and packed bytes that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import entrepot
import numpy as np
import pytest
from entrepot import _core
from entrepot.errors import CorruptData, InvalidArgument
from entrepot_cluster.transport import compression
from entrepot_cluster.transport.compression import Codec, unpack, unpacked_bytes
from entrepot_cluster.transport.endpoints import FetchOutcome, Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import StoreSink
from hypothesis import given
from hypothesis import strategies as st
from tcp_relay import TO_CLIENT, TcpRelay

pytest.importorskip("pyarrow")

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]
LARGE = 24_000_000
# Before a link's rate is known, the kernel's buffers have taken several megabytes.
PACKED_AT_MOST = 0.75 * LARGE


@pytest.fixture
def slow(serve: Serve) -> Iterator[TcpRelay]:
    """A link of at most 13 MB/s before a server that compresses."""
    with TcpRelay(serve(compression="auto").address) as relay:
        relay.delay = 0.005  # for each 64 KiB
        yield relay


def _fetch(peer: PeerConnections, sink: entrepot.Store, ids: Sequence[entrepot.ObjectID]) -> list[FetchOutcome]:
    return fetch(peer, [Wanted(oid.binary) for oid in ids], StoreSink(sink))


def test_a_large_object_is_packed_on_a_slow_link(
    source: entrepot.Store, sink: entrepot.Store, slow: TcpRelay, connect: Connect
) -> None:
    values = np.arange(LARGE // 8)
    oid = source.put(values)
    (outcome,) = _fetch(connect(slow.address, connections=1), sink, [oid])
    assert outcome.error is None
    assert (sink.get(oid) == values).all()
    assert slow.passed[TO_CLIENT] < PACKED_AT_MOST


def test_small_objects_are_packed_together(
    source: entrepot.Store, sink: entrepot.Store, slow: TcpRelay, connect: Connect
) -> None:
    ids = [source.put(np.arange(n, n + 4000)) for n in range(LARGE // 32_000)]
    assert not [outcome for outcome in _fetch(connect(slow.address, connections=1), sink, ids) if outcome.error]
    assert all(sink.get(oid)[-1] == n + 3999 for n, oid in enumerate(ids))
    assert slow.passed[TO_CLIENT] < PACKED_AT_MOST


def test_what_does_not_shrink_is_sent_as_it_is(
    source: entrepot.Store, sink: entrepot.Store, slow: TcpRelay, connect: Connect
) -> None:
    values = np.random.default_rng(1).bytes(LARGE // 2)
    oid = source.put(values)
    (outcome,) = _fetch(connect(slow.address, connections=1), sink, [oid])
    assert outcome.error is None
    assert sink.get(oid) == values
    assert slow.passed[TO_CLIENT] >= LARGE // 2


@pytest.mark.parametrize("side", ["the server is told not to", "the client has no codec"])
def test_nothing_is_packed_unless_both_ends_do(
    side: str,
    source: entrepot.Store,
    sink: entrepot.Store,
    serve: Serve,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.zeros(LARGE // 8)
    oid = source.put(values)
    if side == "the client has no codec":
        monkeypatch.setattr(compression, "supported", list)
    with TcpRelay(serve(compression="off" if "server" in side else "auto").address) as relay:
        relay.delay = 0.005
        (outcome,) = _fetch(connect(relay.address, connections=1), sink, [oid])
        assert outcome.error is None
        assert relay.passed[TO_CLIENT] >= LARGE
    assert (sink.get(oid) == values).all()


def test_a_packed_piece_that_was_changed_on_the_way_is_never_sealed(
    source: entrepot.Store, sink: entrepot.Store, slow: TcpRelay, connect: Connect
) -> None:
    """Whether the byte lies in a header, a prefix or packed bytes: the object arrives intact, or not at all."""
    warm, damaged = (source.put(np.arange(n, n + LARGE // 8)) for n in (0, 1))
    peer = connect(slow.address, connections=1)
    assert _fetch(peer, sink, [warm])[0].error is None  # from now on, pieces are packed
    before = slow.passed[TO_CLIENT]
    slow.corrupt(TO_CLIENT, 1_000_000)
    (outcome,) = _fetch(peer, sink, [damaged])
    assert slow.passed[TO_CLIENT] - before > 1_000_000  # so the byte was changed
    if outcome.error is None:
        assert sink.get(damaged)[-1] == LARGE // 8
    else:
        assert isinstance(outcome.error, CorruptData)
        assert not sink.exists(damaged)
    assert _fetch(peer, sink, [damaged])[0].error is None
    assert (sink.get(damaged) == np.arange(1, 1 + LARGE // 8)).all()


def _packed(codec: Codec, data: bytes) -> tuple[bytes, memoryview]:
    payload, _ = compression._packed(codec, memoryview(data))  # pyright: ignore[reportPrivateUsage]
    prefix = compression._PREFIX.pack(codec, len(data), _core.crc32c(data))  # pyright: ignore[reportPrivateUsage]
    return prefix, payload


@given(st.sampled_from(list(Codec)), st.binary(min_size=1, max_size=5000))
def test_what_was_packed_is_unpacked(codec: Codec, data: bytes) -> None:
    prefix, payload = _packed(codec, data)
    assert unpacked_bytes(prefix) == len(data)
    assert unpack(prefix + b"what follows in the meta", payload) == data


@given(st.sampled_from(list(Codec)), st.binary(min_size=1, max_size=500), st.data())
def test_changed_bytes_are_not_unpacked(codec: Codec, data: bytes, draw: st.DataObject) -> None:
    prefix, payload = _packed(codec, data)
    message = bytearray(prefix + bytes(payload))
    position = draw.draw(st.integers(0, len(message) - 1).filter(lambda at: not 1 <= at < 4))  # those are reserved
    message[position] ^= draw.draw(st.integers(1, 255))
    try:
        unpacked = unpack(bytes(message[: len(prefix)]), memoryview(message)[len(prefix) :])
    except CorruptData:
        return
    assert unpacked == data  # some bits of a packed block mean nothing


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (b"", "has 0 bytes"),
        (b"\1\0\0\0\5\0\0\0\0\0\0", "has 11 bytes"),
        (b"\1\0\0\0\0\0\0\0\0\0\0\0", "announced 0 packed bytes"),
        (b"\1\0\0\0\0\0\0\2\0\0\0\0", "announced 33554432 packed bytes"),
        (b"\7\0\0\0\5\0\0\0\0\0\0\0", "codec 7"),
    ],
)
def test_a_wrong_description_of_packed_bytes(prefix: bytes, expected: str) -> None:
    with pytest.raises(CorruptData, match=expected):
        unpack(prefix, memoryview(b"12345"))


def test_an_unknown_setting(serve: Serve) -> None:
    with pytest.raises(InvalidArgument, match="'fast' is unknown: it is one of auto, off"):
        serve(compression="fast")
