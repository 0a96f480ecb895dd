"""Fixtures: two stores, servers and connections between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import entrepot
import pytest
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.server import GatewayServer
from entrepot_cluster.transport.store_endpoints import StoreSource

SERVING, FETCHING = Identity("tests", "serving"), Identity("tests", "fetching")


@pytest.fixture
def source(daemon: Any) -> Iterator[entrepot.Store]:
    """The store that has the objects."""
    with entrepot.connect(daemon.address, scope="source") as store:
        yield store


@pytest.fixture(scope="module")
def sink_address(start_daemon: Callable[..., Any]) -> str:
    """The address of a second store."""
    return str(start_daemon("256MiB").address)


@pytest.fixture
def sink(sink_address: str) -> Iterator[entrepot.Store]:
    """The second store, in a session that ends with the test."""
    with entrepot.connect(sink_address, session="test") as store:
        yield store
        store.remove_session("test")


@pytest.fixture
def transport() -> str:
    """What servers and connections use; modules and tests override it, by a parameter of this name."""
    return "tcp"


@pytest.fixture
def serve(source: entrepot.Store, transport: str) -> Iterator[Callable[..., GatewayServer]]:
    """``serve(source=StoreSource(store), **options)``: a server on loopback that ends with the test."""
    with ExitStack() as stack:

        def start(objects: Any = None, **options: Any) -> GatewayServer:
            options.setdefault("progress_seconds", 2.0)
            options.setdefault("compression", "off")  # tests count bytes on the wire
            options.setdefault("transport", transport)
            objects = StoreSource(source) if objects is None else objects
            return stack.enter_context(GatewayServer("127.0.0.1:0", SERVING, objects, **options))

        yield start


@pytest.fixture
def connect(transport: str) -> Iterator[Callable[..., PeerConnections]]:
    """``connect(address, **options)``: connections that are closed at the end of the test."""
    with ExitStack() as stack:

        def start(address: str, **options: Any) -> PeerConnections:
            options.setdefault("progress_seconds", 2.0)
            options.setdefault("transport", transport)
            return stack.enter_context(PeerConnections(address, FETCHING, **options))

        yield start
