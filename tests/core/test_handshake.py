"""Rejection of garbage, other versions and other users: the daemon answers, closes the connection, and survives."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import entrepot
import pytest
from entrepot._core import LAYOUT, PROTOCOL

MINOR = PROTOCOL[1]

HEADER = struct.Struct("<IHHIIQ")  # magic, type, flags, body bytes, descriptors, request
MAGIC = 0x31545045
HELLO, SEAL, ERROR = 10, 14, 2
INVALID_ARGUMENT, VERSION_MISMATCH, ACCESS_DENIED = 14, 10, 11


class Daemon(Protocol):
    address: str


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def hello(major: int = 1, minor: int = MINOR, layout: int = LAYOUT, abi_stamp: int = 0) -> bytes:
    """Body of a Hello. Only the extension knows this build's ABI stamp, so none of these is accepted."""
    return (
        struct.pack("<HHIQ", major, minor, layout, abi_stamp)
        + text("0.0-test")
        + struct.pack("<QII", 0, 0, 1024)
        + text("door")
        + text("")
        + struct.pack("<BI", 0, 0)
    )


def frame(kind: int, body: bytes, *, magic: int = MAGIC, length: int | None = None, fds: int = 0) -> bytes:
    return HEADER.pack(magic, kind, 0, len(body) if length is None else length, fds, 7) + body


def converse(daemon: Daemon, *pieces: bytes) -> tuple[int, str] | None:
    """Send, then read until the daemon closes. Returns the code and message of its Error, or None if there was none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(daemon.address.removeprefix("unix://"))
        try:
            for piece in pieces:
                connection.sendall(piece)
        except BrokenPipeError:
            pass  # it closed before everything was sent; its answer can still be read
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass  # closed before reading all we sent
    if len(received) < HEADER.size:
        return None
    magic, kind, _, length, _, _ = HEADER.unpack_from(received)
    assert (magic, kind) == (MAGIC, ERROR)
    body = received[HEADER.size : HEADER.size + length]
    (code,) = struct.unpack_from("<H", body)
    (size,) = struct.unpack_from("<I", body, 3)
    return code, body[7 : 7 + size].decode()


@pytest.mark.parametrize(
    ("major", "minor", "layout"),
    [(2, 0, LAYOUT), (0, 9, LAYOUT), (1, MINOR + 2, LAYOUT), (1, MINOR, LAYOUT + 1), (65535, 65535, 0xFFFFFFFF)],
)
def test_another_version_is_told_both_versions(daemon: Daemon, major: int, minor: int, layout: int) -> None:
    answer = converse(daemon, frame(HELLO, hello(major, minor, layout)))
    assert answer is not None
    code, message = answer
    assert code == VERSION_MISMATCH
    assert f"protocol {major}.{minor}" in message
    assert f"speaks 1.{MINOR}" in message


def test_another_build_is_told_so(daemon: Daemon) -> None:
    answer = converse(daemon, frame(HELLO, hello(abi_stamp=12345)))
    assert answer is not None
    assert answer[0] == VERSION_MISMATCH
    assert "another build" in answer[1]


@pytest.mark.parametrize(
    "opening",
    [
        frame(SEAL, b""),
        frame(HELLO, b"\x01"),
        frame(HELLO, b"", magic=0xDEADBEEF),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        frame(HELLO, b"", length=0xFFFFFFFF),
        frame(HELLO, hello(), fds=1000),
        frame(HELLO, hello(), fds=3),
        frame(HELLO, struct.pack("<HHIQI", 1, 0, LAYOUT, 0, 0xFFFFFFF0)),
    ],
    ids=["no hello", "short hello", "magic", "http", "huge", "many descriptors", "absent descriptors", "huge text"],
)
def test_what_is_no_hello_is_refused(daemon: Daemon, opening: bytes) -> None:
    answer = converse(daemon, opening)
    assert answer is not None
    assert answer[0] == INVALID_ARGUMENT


def test_random_bytes_never_end_the_daemon(daemon: Daemon) -> None:
    rng = random.Random(20)
    for _ in range(200):
        body = rng.randbytes(rng.randrange(0, 300))
        pieces = [frame(rng.randrange(0, 50), body), rng.randbytes(rng.randrange(0, 100))]
        if rng.random() < 0.3:
            pieces = [rng.randbytes(rng.randrange(24, 4000))]
        converse(daemon, *pieces)
    answer = converse(daemon, frame(HELLO, hello(major=9)))
    assert answer is not None, "the daemon no longer answers"


def test_half_a_frame_keeps_nobody_waiting(daemon: Daemon) -> None:
    with socket.socket(socket.AF_UNIX) as silent_connection:
        silent_connection.connect(daemon.address.removeprefix("unix://"))
        silent_connection.sendall(frame(HELLO, hello())[:10])
        answer = converse(daemon, frame(HELLO, hello(major=9)))
    assert answer is not None


def buffer_bytes(store: entrepot.Store) -> int:
    return int(store.status()["budget"]["items"]["buffers"])


def test_halves_of_frames_take_no_more_than_the_size_allows(
    new_daemon: Callable[..., Daemon], wait_until: Callable[..., None]
) -> None:
    """At most 80 MiB for a store of 64 MiB, however many clients send them; the connection that exceeds it closes."""
    small = new_daemon("64MiB")
    half = frame(HELLO, b"x" * (40 << 20), length=60 << 20)
    connections: list[socket.socket] = []
    try:
        with entrepot.connect(small.address) as store:
            for _ in range(4):
                connections.append(socket.socket(socket.AF_UNIX))
                connections[-1].settimeout(20)
                connections[-1].connect(small.address.removeprefix("unix://"))
                with suppress(BrokenPipeError, ConnectionResetError):
                    connections[-1].sendall(half)
            wait_until(lambda: buffer_bytes(store) > 30 << 20, "the first to be read")
            assert buffer_bytes(store) <= 80 << 20
            assert store.get(store.put(b"y" * 100_000)) == b"y" * 100_000
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_by_name(daemon: Daemon, wait_until: Callable[..., None]) -> None:
    path = Path(daemon.address.removeprefix("unix://"))
    os.chmod(path, 0o666)  # as if the file mode were open: the peer's credentials still decide
    for folder in path.parents:
        if folder != Path("/") and folder != Path("/tmp"):
            os.chmod(folder, 0o755)
    script = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "link = socket.socket(socket.AF_UNIX); link.settimeout(20); link.connect(sys.argv[1])\n"
        "link.sendall(bytes.fromhex(sys.argv[2]))\n"
        "sys.stdout.buffer.write(link.recv(65536))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), frame(HELLO, hello()).hex()],
        capture_output=True,
        check=True,
        timeout=30,
    )
    body = done.stdout[HEADER.size :]
    assert struct.unpack_from("<H", body)[0] == ACCESS_DENIED
    assert b"65534" in body
    assert str(os.getuid()).encode() in body
