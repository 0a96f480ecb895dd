"""Requests that are never finished: they hold neither the page's server nor one another's place for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from entrepot_ui.web.connections import MAX_CONNECTIONS

BEGUN = b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nX-Begun: "


@contextmanager
def begun_requests(server: Any, count: int, text: bytes = BEGUN) -> Iterator[list[socket.socket]]:
    """Connections on which the beginning of a request was sent."""
    name, _, port = server.url.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((name, int(port)), 30)) for _ in range(count)]
        for connection in connections:
            connection.settimeout(60)
            send_more(connection, text)
        yield connections


def send_more(connection: socket.socket, text: bytes) -> None:
    """Send to a server that may have closed the connection already."""
    try:
        connection.sendall(text)
    except (BrokenPipeError, ConnectionResetError):
        return


def rest_of(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection, or resets it."""
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        return received
    return received


@pytest.fixture
def server(module_daemon: Any, new_page: Any) -> Iterator[Any]:
    """A page of the test's own, because the test takes its connections."""
    with new_page(module_daemon.address) as page:
        yield page


def test_the_page_loads_while_three_hundred_requests_are_half_sent(server: Any) -> None:
    with begun_requests(server, 300) as connections, server.logged_in() as client:
        for path in ("/", "/assets/main.js", "/api/overview"):
            assert client.get(path).status_code == 200, path
        assert {rest_of(connection) for connection in connections} == {b""}  # closed after HEAD_TIMEOUT at the latest


def test_open_pages_are_not_closed_for_those_who_come_after_them(server: Any) -> None:
    with server.logged_in() as client, client.stream("GET", "/api/events/stream") as events:
        lines = events.iter_lines()
        assert next(lines)
        with begun_requests(server, MAX_CONNECTIONS + 50) as connections:
            assert rest_of(connections[0]) == b""
            ticks = (line for line in lines if line == "event: tick")
            assert [next(ticks) for _ in range(8)]  # for longer than HEAD_TIMEOUT


def test_a_request_that_arrives_in_pieces_is_answered(server: Any) -> None:
    with begun_requests(server, 1, b"GET / HTT") as (connection,):
        send_more(connection, b"P/1.1\r\nHost: loc")
        send_more(connection, b"alhost\r\nConnection: close\r\n\r\n")
        answer = rest_of(connection)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"</html>" in answer


def test_the_next_request_of_a_connection_has_a_time_limit_too(server: Any) -> None:
    with begun_requests(server, 1, b"GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\n\r\n") as (connection,):
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        send_more(connection, BEGUN)
        assert b"HTTP/1.1" not in rest_of(connection)


def test_a_body_that_does_not_arrive_is_not_waited_for(server: Any) -> None:
    with server.logged_in() as client:
        head = (
            "POST /api/actions/delete HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {server.token}\r\nX-CSRF-Token: {client.headers['x-csrf-token']}\r\n"
            "Content-Length: 1000\r\n\r\n{"
        )
    with begun_requests(server, 1, head.encode()) as (connection,):
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


def test_a_flood_is_refused_nothing_that_it_finishes(server: Any) -> None:
    with begun_requests(server, MAX_CONNECTIONS, b""), httpx.Client(base_url=server.url, timeout=30) as client:
        assert [client.get("/").status_code for _ in range(5)] == [200] * 5
