"""Peers that die, stop, send garbage or never read, and bytes that change on the way."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import _core, raw_objects
from entrepot.errors import CorruptData, EntrepotError, StoreFull, StoreUnavailable, Timeout, VersionMismatch
from entrepot_cluster.transport import frames
from entrepot_cluster.transport.endpoints import FetchOutcome, Wanted
from entrepot_cluster.transport.fetching import Fetch, fetch
from entrepot_cluster.transport.frames import Kind
from entrepot_cluster.transport.handshake import Identity, introduce
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.socket_wires import PlainWire
from entrepot_cluster.transport.store_endpoints import LeasedReception, StoreSink
from suspension import suspend
from tcp_relay import TO_CLIENT, TO_SERVER, TcpRelay

Serve = Callable[..., GatewayServer]
Connect = Callable[..., PeerConnections]
LARGE = 3_000_000  # bytes: several pieces


def _errors(outcomes: Sequence[FetchOutcome]) -> list[EntrepotError]:
    return [outcome.error for outcome in outcomes if outcome.error is not None]


def _wanted(*ids: entrepot.ObjectID) -> list[Wanted]:
    return [Wanted(oid.binary) for oid in ids]


@pytest.fixture
def relayed(serve: Serve) -> Iterator[TcpRelay]:
    """A relay before a server of the source."""
    with TcpRelay(serve().address) as relay:
        yield relay


@pytest.mark.parametrize("size", [5_000, LARGE], ids=["small", "large"])
def test_a_changed_byte_is_never_sealed(
    size: int, source: entrepot.Store, sink: entrepot.Store, relayed: TcpRelay, connect: Connect
) -> None:
    ids = [source.put(np.full(size, n, dtype=np.uint8)) for n in range(3)]
    peer = connect(relayed.address)
    peer.ping()
    used = sink.status()["used_bytes"]
    # within the bytes of the second small object, or of one of the pieces
    relayed.corrupt(TO_CLIENT, 1000 + 5_000 if size < LARGE else 2_000_000)
    outcomes = fetch(peer, _wanted(*ids), StoreSink(sink))
    (error,) = _errors(outcomes)
    assert isinstance(error, CorruptData)
    assert "CRC-32C" in str(error)
    for outcome, oid in zip(outcomes, ids, strict=True):
        assert sink.exists(oid) == (outcome.error is None)
    assert not _errors(fetch(peer, _wanted(*ids), StoreSink(sink)))  # and the next time it arrives
    assert all((sink.get(oid) == n).all() for n, oid in enumerate(ids))
    sink.delete(ids[0])
    assert sink.status()["used_bytes"] >= used


def test_a_changed_byte_of_a_head(
    source: entrepot.Store, sink: entrepot.Store, relayed: TcpRelay, connect: Connect
) -> None:
    oid = source.put(np.arange(10))
    peer = connect(relayed.address)
    peer.ping()
    relayed.corrupt(TO_CLIENT, 10)
    (error,) = _errors(fetch(peer, _wanted(oid), StoreSink(sink)))
    assert isinstance(error, CorruptData)
    assert not sink.exists(oid)
    peer.ping()
    relayed.corrupt(TO_SERVER, 10)  # the server cuts the connection, and the request is sent again on another
    assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))


@pytest.mark.parametrize("after", [0, 40, 200_000, 2_500_000], ids=["head", "record", "piece", "late piece"])
def test_a_dropped_connection_is_replaced(
    after: int, source: entrepot.Store, sink: entrepot.Store, relayed: TcpRelay, connect: Connect
) -> None:
    ids = [source.put(np.full(LARGE, 7, dtype=np.uint8)), *(source.put(np.arange(n)) for n in range(50))]
    peer = connect(relayed.address)
    peer.ping()
    relayed.drop_after(TO_CLIENT, after)
    assert not _errors(fetch(peer, _wanted(*ids), StoreSink(sink)))
    assert (sink.get(ids[0]) == 7).all()


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT], ids=["requests", "answers"])
def test_a_direction_that_is_cut(
    direction: str, source: entrepot.Store, sink: entrepot.Store, relayed: TcpRelay, connect: Connect
) -> None:
    oid = source.put(np.arange(500_000))
    peer = connect(relayed.address, progress_seconds=1.0)
    peer.ping()
    used = sink.status()["used_bytes"]
    relayed.cut(direction)
    (error,) = _errors(fetch(peer, _wanted(oid), StoreSink(sink)))
    assert isinstance(error, Timeout)
    assert "1 s" in str(error)
    with pytest.raises(Timeout):
        peer.ping()
    assert sink.status()["used_bytes"] == used
    relayed.heal()
    assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))


def test_a_slow_link_is_not_a_silent_one(
    source: entrepot.Store, sink: entrepot.Store, relayed: TcpRelay, connect: Connect
) -> None:
    oid = source.put(np.full(LARGE, 3, dtype=np.uint8))
    relayed.delay = 0.05  # for each 64 KiB: 48 pieces over 4 connections take longer than the time limit
    peer = connect(relayed.address, progress_seconds=0.5, connections=1)
    assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))


class Stepping(StoreSink):
    """A sink that stops before the memory of a large object is taken, or before it is sealed."""

    def __init__(self, store: entrepot.Store, step: str) -> None:
        super().__init__(store)
        self._step = step
        self.reached, self.go_on = threading.Event(), threading.Event()

    def _stop(self, step: str) -> None:
        if step == self._step:
            self.reached.set()
            assert self.go_on.wait(30)

    def allocate(self, header: Any) -> LeasedReception:
        """Take memory."""
        self._stop("announced")
        return super().allocate(header)

    def commit(self, reception: Any) -> EntrepotError | None:
        """Seal."""
        self._stop("received")
        return super().commit(reception)


@pytest.fixture
def serving_process(
    source: entrepot.Store, transport: str
) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """``serving_process()``: a server of the source in a process of its own, and its address."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        program = str(Path(__file__).with_name("serving_process.py"))
        process = subprocess.Popen(
            [sys.executable, program, source.address, "127.0.0.1:0", transport],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=30)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
@pytest.mark.parametrize("end", [_kill, suspend], ids=["killed", "stopped"])
@pytest.mark.parametrize("step", ["idle", "announced", "received"])
def test_a_peer_that_ends_in_each_step(
    step: str,
    end: Callable[[int], None],
    source: entrepot.Store,
    sink: entrepot.Store,
    connect: Connect,
    serving_process: Callable[[], tuple[subprocess.Popen[str], str]],
    wait_until: Callable[..., None],
) -> None:
    oid = source.put(np.full(LARGE, 5, dtype=np.uint8))
    used = sink.status()["used_bytes"]
    process, address = serving_process()
    peer = connect(address, progress_seconds=1.0)
    peer.ping()
    stepping = Stepping(sink, step)
    outcomes: list[FetchOutcome] = []
    worker = threading.Thread(target=lambda: outcomes.extend(fetch(peer, _wanted(oid), stepping)))
    if step == "idle":
        end(process.pid)
        worker.start()
    else:
        worker.start()
        assert stepping.reached.wait(30)
        end(process.pid)
        stepping.go_on.set()
    worker.join(30)
    assert not worker.is_alive()
    if step == "received":  # everything had arrived
        assert outcomes[0].error is None
        assert (sink.get(oid) == 5).all()
        return
    expected = Timeout if end is suspend else StoreUnavailable
    assert type(outcomes[0].error) is expected, outcomes[0].error
    assert not sink.exists(oid)
    wait_until(lambda: sink.status()["used_bytes"] == used, "the memory to be given back")


def _connected(server: GatewayServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def _introduced(server: GatewayServer) -> Link:
    link = Link(_connected(server), "the server", 10)
    introduce(link, Identity("tests", "bad"), TransportSecurity())
    return link


def _socket(link: Link) -> socket.socket:
    assert isinstance(link.wire, PlainWire)
    return link.wire.socket


def _ends(connection: socket.socket) -> bool:
    """Whether the server closes the connection within the test's patience."""
    connection.settimeout(15)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def _head(kind: int, meta_bytes: int, payload_bytes: int) -> bytes:
    header = struct.pack("<BBHIIQII", kind, 0, 0, 1, meta_bytes, payload_bytes, 0, 0)
    return header + _core.crc32c(header).to_bytes(4, "little")


GARBAGE = {
    "not a frame": b"\xff" * 4096,
    "huge metadata": _head(Kind.FETCH, 0xFFFFFFFF, 0),
    "huge payload": _head(Kind.FETCH, 0, 1 << 60),
    "an answer": frames.pack_head(Kind.PIECE, 1),
    "no list": frames.pack_head(Kind.FETCH, 1, b"abc"),
    "an empty list": frames.pack_head(Kind.FETCH, 1),
    "no map": frames.pack_head(Kind.CONTROL, 1, b"\xc1"),
    "a map without operation": frames.pack_head(Kind.CONTROL, 1, frames.pack_map({"op": 7})),
    "a range without generation": frames.pack_head(Kind.READ, 1, frames.pack_read(bytes(20), 0, 0, 1)),
    "half a frame": frames.pack_head(Kind.FETCH, 1, bytes(28))[:20],
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_client_that_sends_garbage_is_cut_off(
    what: str,
    source: entrepot.Store,
    sink: entrepot.Store,
    serve: Serve,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = serve(progress_seconds=1.0)
    peer = connect(server.address)
    oid = source.put(np.arange(1000))
    with caplog.at_level(logging.WARNING):
        link = _introduced(server)
        link.send([GARBAGE[what]])
        assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))  # nobody else notices
        assert _ends(_socket(link))
        link.close()
    assert any("ends the connection" in record.message for record in caplog.records)
    peer.ping()


def test_a_range_beyond_the_object(source: entrepot.Store, serve: Serve) -> None:
    oid = source.put(np.arange(100_000))
    generation = raw_objects.read(source, oid).generation
    server = serve()
    link = _introduced(server)
    link.send_frame(Kind.READ, 1, frames.pack_read(oid.binary, generation, 799_999, 2))
    assert _ends(_socket(link))
    assert server.pinned_bytes == 800_000  # until it is idle for long enough, or somebody needs the room
    link.close()


def test_versions_in_both_directions(serve: Serve, connect: Connect) -> None:
    with closing(_connected(serve())) as connection:
        connection.sendall(struct.pack("<4sHH", b"EPTG", 9, 4))
        assert frames.check_preamble(connection.recv(8)) == frames.VERSION  # so that the newer one can tell
        assert _ends(connection)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            connection, _ = other.accept()
            connection.sendall(struct.pack("<4sHH", b"EPTG", 9, 4))
            connection.recv(1000)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(VersionMismatch, match=r"version 9\.4 .* version 1\.2"):
            connect(address).ping()
        thread.join()


@pytest.mark.parametrize("speaks", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "another protocol"])
def test_what_is_no_gateway(speaks: bytes, connect: Connect) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        accepted: list[socket.socket] = []

        def answer() -> None:
            connection, _ = other.accept()
            accepted.append(connection)
            connection.sendall(speaks)

        thread = threading.Thread(target=answer)
        thread.start()
        peer = connect(f"127.0.0.1:{other.getsockname()[1]}", progress_seconds=0.5)
        with pytest.raises(CorruptData if speaks else Timeout):
            peer.ping()
        thread.join()
        accepted[0].close()


def test_a_client_that_never_reads_is_cut_off(
    source: entrepot.Store,
    sink: entrepot.Store,
    serve: Serve,
    connect: Connect,
    wait_until: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    oid = source.put(np.full(60_000_000, 1, dtype=np.uint8))
    generation = raw_objects.read(source, oid).generation
    server = serve(progress_seconds=1.0)
    link = _introduced(server)
    link.send_frame(Kind.READ, 1, frames.pack_read(oid.binary, generation, 0, 60_000_000))
    assert not _errors(fetch(connect(server.address), _wanted(oid), StoreSink(sink)))  # nobody else notices
    wait_until(lambda: any("has not read a byte for 1 s" in record.message for record in caplog.records), "the cut")
    link.close()


def test_a_handshake_has_a_time_limit_as_a_whole(serve: Serve) -> None:
    server = serve(progress_seconds=0.5)
    with closing(_connected(server)) as connection:
        connection.sendall(frames.pack_preamble())
        assert _ends(connection)


def _ping_until_admitted(peer: PeerConnections) -> None:
    """Ping until the server has room; refusals are either StoreFull, or a connection that is closed without a word."""
    deadline = time.monotonic() + 60
    while True:
        try:
            peer.ping()
            return
        except (StoreFull, StoreUnavailable):  # too many are being told of the limit at this moment
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_connections_are_bounded(source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect) -> None:
    server = serve(max_connections=2)
    links = [_introduced(server) for _ in range(2)]
    with pytest.raises(StoreFull, match="has 2 connections already"):
        connect(server.address).ping()
    links[0].close()
    oid = source.put(np.full(LARGE, 1, dtype=np.uint8))
    peer = connect(server.address)
    _ping_until_admitted(peer)  # the server notices the end of the first one
    assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))  # with less connections than it would like
    links[1].close()


def test_connections_that_say_nothing_give_way_to_peers(
    source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    server = serve(max_connections=3, progress_seconds=120.0)
    silent = [_connected(server) for _ in range(3)]
    oid = source.put(np.full(LARGE, 1, dtype=np.uint8))
    peer = connect(server.address, connections=1)
    _ping_until_admitted(peer)  # they have been silent for long enough
    assert not _errors(fetch(peer, _wanted(oid), StoreSink(sink)))
    assert server.connections <= 3
    for connection in silent:
        connection.close()


def test_a_server_that_closes_ends_its_connections(source: entrepot.Store, serve: Serve, connect: Connect) -> None:
    server = serve()
    peer = connect(server.address)
    peer.ping()
    server.close()
    assert server.connections == 0
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        peer.ping()


def test_idle_connections_are_closed_and_opened_again(
    serve: Serve, connect: Connect, wait_until: Callable[..., None]
) -> None:
    server = serve(idle_seconds=0.2, progress_seconds=0.2)
    peer = connect(server.address)
    peer.ping()
    wait_until(lambda: server.connections == 0, "the server to close an idle connection")
    peer.ping()
    other = serve()
    second = connect(other.address, idle_seconds=0.0)
    second.ping()
    second.close_idle()
    wait_until(lambda: other.connections == 0, "the client to close an idle connection")
    second.ping()


def test_a_fetch_with_an_error_of_the_caller_leaves_nothing(
    source: entrepot.Store, sink: entrepot.Store, serve: Serve, connect: Connect
) -> None:
    oid = source.put(np.full(LARGE, 1, dtype=np.uint8))
    used = sink.status()["used_bytes"]

    class Broken(StoreSink):
        def commit(self, reception: Any) -> EntrepotError | None:
            reception.drop()
            raise RuntimeError("a bug of the sink")

    with pytest.raises(RuntimeError, match="a bug of the sink"):
        Fetch(connect(serve().address), _wanted(oid), Broken(sink)).run()
    assert sink.status()["used_bytes"] == used
