"""What is particular to UCX: when it is used, what is refused, what ends a connection. The rest is in test_fetch."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import CorruptData, InvalidArgument, StoreUnavailable, Timeout
from entrepot_cluster.gateway.settings import GatewaySettings
from entrepot_cluster.transport.endpoints import Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.handshake import Identity, introduce
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TlsFiles, TransportSecurity
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.socket_wires import PlainWire
from entrepot_cluster.transport.store_endpoints import StoreSink
from entrepot_cluster.transport.ucx_wire import UcxOffer, UcxWire

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]


@pytest.mark.parametrize(("server", "client"), [("ucx", "ucx"), ("ucx", "tcp"), ("tcp", "ucx")])
def test_ucx_is_used_where_both_ends_offer_it(
    server: str, client: str, source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    oid = source.put(np.arange(1_000_000))
    peer = connect(serve(transport=server).address, transport=client)
    link = peer.acquire()
    assert link is not None
    assert isinstance(link.wire, UcxWire if server == client else PlainWire)
    peer.release(link, reusable=True)
    (outcome,) = fetch(peer, [Wanted(oid.binary)], StoreSink(sink))
    assert outcome.error is None
    assert (sink.get(oid) == np.arange(1_000_000)).all()


def test_ucx_needs_no_tls_and_a_known_name(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "certificate", tmp_path / "key", tmp_path / "ca")
    own = Identity("tests", "a")
    with pytest.raises(InvalidArgument, match="UCX does not encrypt"):
        PeerConnections("127.0.0.1:1", own, security=TransportSecurity(tls=files), transport="ucx")
    with pytest.raises(InvalidArgument, match="'rdma' is unknown: it is one of tcp, ucx"):
        PeerConnections("127.0.0.1:1", own, transport="rdma")
    assert GatewaySettings("etcd://127.0.0.1:1/x").transport == "tcp"


def test_an_installation_without_ucx_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "entrepot_cluster._ucx", None)
    with pytest.raises(StoreUnavailable, match=r"install libucx0.*or use the transport tcp"):
        PeerConnections("127.0.0.1:1", Identity("tests", "a"), transport="ucx")


@pytest.mark.parametrize(
    "message", [None, 7, {}, {"address": b"", "tag": bytes(8)}, {"address": b"x", "tag": b"short"}]
)
def test_a_peer_that_describes_its_end_wrongly_is_refused(message: Any) -> None:
    near, far = socket.socketpair()
    with (
        closing(near),
        closing(far),
        pytest.raises(CorruptData, match="peer"),
        UcxOffer(PlainWire(near, 1.0), 1.0) as offer,
    ):
        offer.accept(message)


@pytest.fixture
def wires() -> Iterator[tuple[UcxWire, UcxWire]]:
    """Both ends of a connection, with a time limit of half a second."""
    first, second = (PlainWire(each, 0.5) for each in socket.socketpair())
    with UcxOffer(first, 0.5) as near, UcxOffer(second, 0.5) as far:
        ends = near.accept(far.message()), far.accept(near.message())
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_whatever_their_sizes_and_where_they_are_split(wires: tuple[UcxWire, UcxWire]) -> None:
    near, far = wires
    generator = np.random.default_rng(5)
    sent = [generator.bytes(size) for size in (1, 40, 9_000, 70_000, 1 << 20, 3, 5_000_000)]

    def send() -> None:
        near.send(sent)
        near.send([b"head", memoryview(sent[4]), b"", memoryview(sent[5])])

    sending = threading.Thread(target=send)
    sending.start()
    expected = b"".join(sent) + b"head" + sent[4] + sent[5]
    received = bytearray(len(expected))
    view, offset = memoryview(received), 0
    for size in (1, 20, 20, 100, *[500_000] * 20):
        part = view[offset : offset + size]
        if not part:
            break
        halves = [half for half in (part[: len(part) // 3], part[len(part) // 3 :]) if half]
        offset += far.receive(halves)
    sending.join(30)
    assert received == expected
    assert far.is_quiet()


def test_waits_end(wires: tuple[UcxWire, UcxWire]) -> None:
    near, far = wires
    assert not far.wait_readable(0.05)
    with pytest.raises(BlockingIOError):
        far.receive([memoryview(bytearray(1))])
    with pytest.raises(ConnectionResetError):  # one time limit that has passed ends a connection
        far.receive([memoryview(bytearray(1))])
    with pytest.raises(BlockingIOError):
        near.send([bytes(8 << 20)])  # nobody takes it


@pytest.mark.parametrize("how", ["closed", "interrupted"])
def test_a_waiting_thread_learns_that_the_connection_has_ended(wires: tuple[UcxWire, UcxWire], how: str) -> None:
    near, far = wires
    ended: list[BaseException] = []

    def receive() -> None:
        try:
            far.receive([memoryview(bytearray(1))])
        except OSError as error:
            ended.append(error)

    waiting = threading.Thread(target=receive)
    waiting.start()
    near.close() if how == "closed" else far.interrupt()
    waiting.join(30)
    assert [type(error) for error in ended] == [ConnectionResetError]
    assert not far.is_quiet()
    assert not far.wait_readable(10)


def test_what_was_sent_before_closing_arrives(wires: tuple[UcxWire, UcxWire]) -> None:
    near, far = wires

    def send_and_close() -> None:
        near.send([b"refused: full"])  # the first message waits until the other end takes part
        near.close_after_reading()

    closing_end = threading.Thread(target=send_and_close)
    closing_end.start()
    received = bytearray(13)
    far.receive([memoryview(received)])
    far.close()
    closing_end.join(30)
    assert received == b"refused: full"


def test_a_message_longer_than_any_frame_ends_the_connection(wires: tuple[UcxWire, UcxWire]) -> None:
    near, far = wires

    def send() -> None:
        with pytest.raises(OSError):
            near.send([bytes(97 << 20)])

    sending = threading.Thread(target=send)
    sending.start()
    with pytest.raises(OSError, match="Bad message"):
        far.receive([memoryview(bytearray(32))])
    sending.join(30)


def test_a_request_has_its_time_limit(serve: Serve) -> None:
    server = serve(transport="ucx")
    host, _, port = server.address.rpartition(":")
    link = Link(socket.create_connection((host, int(port)), 10), "the server", 0.3)
    introduce(link, Identity("tests", "silent"), TransportSecurity(), transport="ucx")
    with closing(link), pytest.raises(Timeout, match="has sent no byte"):
        link.receive(bytearray(32))
