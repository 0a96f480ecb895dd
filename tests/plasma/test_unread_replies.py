"""Hundreds of clients that never read: what is kept for them together is limited, and nobody else notices."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from benchmarks.harness.plasma_connection import HEADER, OK, PlasmaConnection, table

pytestmark = pytest.mark.timeout(180)

MIB = 1 << 20
LIST, SUBSCRIBE = 17, 23
OBJECTS = 8_000  # almost a megabyte of a list
CLIENTS = 300  # more than the limit, even without what their sockets hold


def oid(number: int) -> bytes:
    return b"unread-%013d" % number


def put_objects(client: PlasmaConnection) -> None:
    for number in range(OBJECTS):
        client.create_and_seal(oid(number), b"x", b"")


def ask_for_a_list(peer: socket.socket) -> None:
    peer.sendall(HEADER.pack(0, LIST, len(table())) + table())


def subscribe(peer: socket.socket) -> socket.socket:
    """Subscribe; return the end on which notifications arrive."""
    ours, theirs = socket.socketpair()
    with closing(theirs):
        peer.sendall(HEADER.pack(0, SUBSCRIBE, len(table())) + table())
        socket.send_fds(peer, [b"\0"], [theirs.fileno()])
    return ours


@pytest.mark.parametrize("subscribes", [False, True], ids=["lists", "notifications"])
def test_what_nobody_reads_is_limited(
    new_front_end: Callable[..., Any], wait_until: Callable[..., None], subscribes: bool
) -> None:
    front_end = new_front_end(16 * MIB)
    with closing(PlasmaConnection(front_end.socket)) as client, ExitStack() as stack:
        put_objects(client)
        for _ in range(CLIENTS):
            peer = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            peer.connect(str(front_end.socket))
            with suppress(ConnectionError):
                if subscribes:
                    stack.enter_context(closing(subscribe(peer)))
                else:
                    ask_for_a_list(peer)
        log_text = "whose subscription ends" if subscribes else "of replies that are not read"
        wait_until(lambda: log_text in front_end.log(), "the limit to be met")
        assert client.contains(oid(0))
        assert client.delete(oid(0)) == OK
    assert front_end.process.poll() is None
