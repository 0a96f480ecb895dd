"""Whoever sends garbage, reads nothing or comes a thousand times is cut off or ignored; nobody else notices."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

import psutil
import pytest
from suspension import suspend

from benchmarks.harness.plasma_connection import OK, OUT_OF_MEMORY, PlasmaConnection

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
CONNECT, CREATE, CREATE_AND_SEAL, GET, RELEASE = 19, 1, 3, 9, 11
REPLY_OF_CONNECT = 20


def frame(kind: int, body: bytes = b"", version: int = 0, length: int | None = None) -> bytes:
    return struct.pack("<qqq", version, kind, len(body) if length is None else length) + body


def connected(front_end: Any) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(60)
    peer.connect(str(front_end.socket))
    return peer


def is_cut_off(peer: socket.socket) -> bool:
    """Whether the front end closes the connection; it waits for that."""
    try:
        while peer.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def answers(peer: socket.socket) -> bool:
    """Whether the front end still serves this connection."""
    peer.sendall(frame(CONNECT))
    version, kind, length = struct.unpack("<qqq", peer.recv(24, socket.MSG_WAITALL))
    peer.recv(length, socket.MSG_WAITALL)
    return (version, kind) == (0, REPLY_OF_CONNECT)


BAD: dict[str, bytes] = {
    "another version": frame(CONNECT, version=1),
    "negative length": frame(CONNECT, length=-1),
    "length beyond the arena": frame(CREATE, length=1 << 40),
    "unknown type": frame(99),
    "a reply's type": frame(2),
    "empty create": frame(CREATE),
    "garbage in create": frame(CREATE, bytes(range(200))),
    "offsets out of the message": frame(CREATE, b"\xff" * 64),
    "release of garbage": frame(RELEASE, b"\x10\x00\x00\x00" * 8),
    "get of garbage": frame(GET, b"\x04\x00\x00\x00" * 8),
    "not Plasma at all": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_client_that_breaks_the_protocol_is_cut_off(new_front_end: Any, name: str) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(connected(front_end)) as good, closing(connected(front_end)) as bad:
        bad.sendall(BAD[name])
        assert is_cut_off(bad)
        assert answers(good)
    assert "is cut off" in front_end.log()


@pytest.mark.parametrize("name", BAD)
def test_what_precedes_it_is_answered(new_front_end: Any, name: str) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(connected(front_end)) as bad:
        bad.sendall(frame(CONNECT) + BAD[name])
        version, kind, length = struct.unpack("<qqq", bad.recv(24, socket.MSG_WAITALL))
        assert (version, kind) == (0, REPLY_OF_CONNECT)
        assert len(bad.recv(length, socket.MSG_WAITALL)) == length
        assert is_cut_off(bad)
    assert "is cut off" in front_end.log()


def test_random_bytes_are_survived(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    dice = random.Random(11)
    with closing(connected(front_end)) as good:
        for _ in range(300):
            with closing(connected(front_end)) as bad, suppress(BrokenPipeError, ConnectionResetError):
                body = dice.randbytes(dice.randrange(200))
                bad.sendall(frame(dice.randrange(36), body) * dice.randrange(1, 4))
        assert answers(good)
    assert front_end.process.poll() is None


def test_a_truncated_message_waits_and_ends_with_its_client(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(connected(front_end)) as good:
        for cut in (1, 8, 23, 24, 30):
            with closing(connected(front_end)) as half:
                half.sendall(frame(CREATE, bytes(100))[:cut])
        assert answers(good)


def test_halves_of_large_messages_are_limited_together(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with ExitStack() as stack:
        good = stack.enter_context(closing(connected(front_end)))
        for _ in range(5):  # 100 MiB in all; one message may have 64 MiB more than the arena
            half = stack.enter_context(closing(connected(front_end)))
            with suppress(BrokenPipeError, ConnectionResetError):
                half.sendall(frame(CREATE_AND_SEAL, length=30 * MIB))
                half.sendall(bytes(20 * MIB))
        assert answers(good)
    assert "could not be handled yet" in front_end.log()


def test_a_client_that_never_reads_stops_nobody(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(connected(front_end)) as good, closing(connected(front_end)) as deaf:
        deaf.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                deaf.send(frame(CONNECT) * 1000)
        assert answers(good)


def test_a_thousand_connections(new_front_end: Any, wait_until: Callable[..., None]) -> None:
    front_end = new_front_end(16 * MIB)
    process = psutil.Process(front_end.process.pid)
    before = process.num_fds()
    with ExitStack() as stack:
        peers = [stack.enter_context(closing(connected(front_end))) for _ in range(1000)]
        assert all(answers(peer) for peer in (peers[0], peers[500], peers[-1]))
    wait_until(lambda: process.num_fds() <= before, "the descriptors to be closed")


def test_without_descriptors_clients_wait_and_the_others_are_served(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    pid = front_end.process.pid
    with closing(connected(front_end)) as first:
        assert answers(first)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (psutil.Process(pid).num_fds() + 2, before[1]))
        with ExitStack() as stack:
            early = [stack.enter_context(closing(connected(front_end))) for _ in range(2)]
            assert all(answers(peer) for peer in early)
            late = stack.enter_context(closing(connected(front_end)))
            late.sendall(frame(CONNECT))
            late.settimeout(0.5)  # several of the front end's attempts
            with pytest.raises(TimeoutError):
                late.recv(1)
            assert answers(first)
            early[0].close()
            late.settimeout(60)
            assert answers(late)
    assert front_end.log().count("Too many open files") == 1  # not one line for each attempt


def test_requests_of_a_stopped_client_hold_up_nobody(new_front_end: Any, stock_client: Any) -> None:
    front_end = new_front_end(64 * MIB)
    stopped, other = stock_client(front_end), stock_client(front_end)
    stopped.run(f"b = client.create(oid(1), {MIB})")
    suspend(stopped.process.pid)
    try:
        other.run("client.put_raw_buffer(b'x', oid(2))")
        assert other.run("client.get_buffers([oid(2)])[0].to_pybytes()") == b"x"
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    assert stopped.run("client.seal(oid(1))") is None


def test_what_a_client_calls_itself_does_not_grow(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(PlasmaConnection(front_end.socket)) as client:
        for number in range(1000):
            assert client.set_options(b"name-%d" % number, 0) == OK
        assert client.set_options(b"x" * 257, 0) == OUT_OF_MEMORY
        assert client.set_options(b"x" * 256, 0) == OK
        assert client.set_options(b"last", 0) == OK
        client.misbehave()
    (line,) = [line for line in front_end.log().splitlines() if "is cut off" in line]
    assert "(last)" in line
    assert "name-" not in line


def test_a_front_end_that_ends_leaves_the_socket_of_its_successor(new_front_end: Any) -> None:
    first = new_front_end(16 * MIB)
    first.socket.unlink()  # as a cleaner of temporary files does
    second = new_front_end(16 * MIB)
    assert first.stop() == 0
    with closing(connected(second)) as peer:
        assert answers(peer)
    assert second.stop() == 0
    assert not second.socket.exists()
