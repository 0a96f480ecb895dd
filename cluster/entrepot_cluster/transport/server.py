"""The server of a gateway: accepts the connections of peers, and serves each in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

from entrepot.errors import EntrepotError, InvalidArgument, StoreFull, StoreUnavailable, Timeout

from entrepot_cluster.transport.addresses import resolve, split_address
from entrepot_cluster.transport.compression import AUTO, OFF, check_setting
from entrepot_cluster.transport.endpoints import GatewayRequests, ObjectSource
from entrepot_cluster.transport.frames import Kind, pack_error, pack_preamble
from entrepot_cluster.transport.handshake import Identity, welcome
from entrepot_cluster.transport.links import DEFAULT_PROGRESS_SECONDS, Link
from entrepot_cluster.transport.pins import PinnedObjects
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.serving import ServerConnection, Services
from entrepot_cluster.transport.ucx_wire import TCP, check_transport

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.5
HANDSHAKE_SECONDS = 1.0  # after which a connection in the handshake gives way to a new one, if there are too many
_TURNED_AWAY = 8  # connections beyond the limit that are told so at the same time; others are closed at once


class GatewayServer:
    """Listens for peers and serves them until it is closed. A context manager.

    What one peer does concerns its own connections only: one that sends garbage, stops or never reads is cut off with a
    line in the log.

    Args:
        address: ``host:port`` to listen on; port 0: any free one.
        identity: what the server says about itself.
        source: where the objects are read.
        requests: what it does for its peers beside that; default: it refuses.
        security: default: loopback addresses only, without any check.
        max_connections: at the same time, those in the handshake included. Beyond it, the oldest that has been in the
            handshake for a second is ended; if there is none, the new one is refused. Default: 256.
        max_pinned_bytes: of large objects that are kept open for peers that read them. Default: 4 GiB. A batch of small
            ones, of at most 2 MiB, is held in addition by each connection that is sending it.
        progress_seconds: how long to wait for the next byte of a peer that is sending or being sent something, and for
            the handshake as a whole. Default: 10.
        idle_seconds: after which a connection without requests is closed. Default: 300.
        transport: ``"ucx"``: objects travel over UCX to peers that offer it too. Default: ``"tcp"``.
        compression: ``"auto"``: objects are sent compressed where that makes them arrive earlier, to peers that can
            unpack them; ``"off"``: never. Default: auto.
        work_seconds: the longest that a single object may take to open, or a control request to be answered. Default:
            3600.

    Raises:
        InvalidArgument: the address or a setting is malformed, or the address would need TLS or a token.
        StoreUnavailable: it is not this host's, or in use; or UCX cannot be used here.

    Attributes:
        address: ``host:port`` that it listens on.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        source: ObjectSource,
        *,
        requests: GatewayRequests | None = None,
        security: TransportSecurity | None = None,
        max_connections: int = 256,
        max_pinned_bytes: int = 4 << 30,
        progress_seconds: float = DEFAULT_PROGRESS_SECONDS,
        idle_seconds: float = 300.0,
        work_seconds: float = 3600.0,
        compression: str = AUTO,
        transport: str = TCP,
    ) -> None:
        if max_connections < 1 or progress_seconds <= 0:
            raise InvalidArgument(f"{max_connections} connections and {progress_seconds} s of waiting must be positive")
        self._packs = check_setting(compression) != OFF
        self._identity = identity
        self._security = security or TransportSecurity()
        self._transport = check_transport(transport, self._security)
        self._max_connections = max_connections
        self._progress_seconds = progress_seconds
        self._idle_seconds = idle_seconds
        self._pins = PinnedObjects(source, max_pinned_bytes, progress_seconds)
        self._services = Services(source, self._pins, requests, progress_seconds, work_seconds)
        self._lock = threading.Lock()
        # Open connections, oldest first, and since when they are in the handshake; guarded by _lock.
        self._links: dict[Link | socket.socket, ServerConnection | float] = {}
        self._threads: set[threading.Thread] = set()  # that serve them; guarded by _lock
        self._closing = threading.Event()
        host, port = split_address(address)
        family, numeric = resolve(host, port)[0]
        self._security.check_address(numeric[0])
        try:
            self._listener = socket.create_server(numeric, family=family, backlog=128)
        except OSError as error:
            raise StoreUnavailable(f"the gateway cannot listen on {address}: {error}") from error
        shown = f"[{numeric[0]}]" if family == socket.AF_INET6 else numeric[0]
        self.address = f"{shown}:{self._listener.getsockname()[1]}"
        self._loops = [
            threading.Thread(target=self._accept_all, name="gateway-accept", daemon=True),
            threading.Thread(target=self._tick_all, name="gateway-tick", daemon=True),
        ]
        for thread in self._loops:
            thread.start()

    @property
    def pinned_bytes(self) -> int:
        """Bytes of large objects that are open for peers at this moment."""
        return self._pins.nbytes

    @property
    def connections(self) -> int:
        """Open connections at this moment."""
        with self._lock:
            return len(self._links)

    def close(self) -> None:
        """Stop listening, end all connections and wait for their threads. Idempotent."""
        self._closing.set()
        with suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        with self._lock:
            links, threads = list(self._links), list(self._threads)
        for link in links:
            _interrupt(link)
        for thread in (*self._loops, *threads):
            if thread is not threading.current_thread():
                thread.join(self._progress_seconds + 5)
        self._pins.close_idle(0)

    def __enter__(self) -> GatewayServer:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def _accept_all(self) -> None:
        while not self._closing.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                if not self._closing.is_set():  # no descriptors, say; the listener stays
                    _log.warning("the gateway cannot accept a connection: %s", error)
                    self._closing.wait(_TICK_SECONDS)
                continue
            peer = f"{address[0]}:{address[1]}"
            with self._lock:
                if len(self._links) >= self._max_connections:
                    self._give_up_oldest_handshake()
                count = len(self._links)
                if count >= self._max_connections + _TURNED_AWAY or self._closing.is_set():
                    connection.close()
                    continue
                thread = threading.Thread(
                    target=self._run,
                    args=(connection, peer, count >= self._max_connections),
                    name=f"gateway-{peer}",
                    daemon=True,
                )
                self._links[connection] = time.monotonic()
                self._threads.add(thread)
            thread.start()

    def _give_up_oldest_handshake(self) -> None:
        """End a connection that has been silent since it was opened, if there is one: whoever made it may be anybody.

        Needs _lock.
        """
        for link, state in self._links.items():
            if isinstance(state, float) and time.monotonic() - state > HANDSHAKE_SECONDS:
                del self._links[link]
                _interrupt(link)
                return

    def _run(self, connection: socket.socket, peer: str, beyond_limit: bool) -> None:
        link: Link | None = None
        try:
            connection = self._replace(connection, self._secured(connection, peer))
            link = Link(connection, f"the peer at {peer}", self._progress_seconds)
            self._replace(connection, link)
            self._serve(link, beyond_limit)
        except EntrepotError as error:
            if not self._closing.is_set():
                _log.warning("the gateway ends the connection of the peer at %s: %s", peer, error)
        except Exception:
            _log.exception("serving the peer at %s failed", peer)
        finally:
            if link is not None and not self._closing.is_set():
                link.close_after_reading()
            (link or connection).close()
            with self._lock:
                self._links.pop(link or connection, None)
                self._threads.discard(threading.current_thread())

    def _secured(self, connection: socket.socket, peer: str) -> socket.socket:
        try:
            return self._security.wrap(connection, f"the peer at {peer}", server=True, seconds=self._progress_seconds)
        except EntrepotError:
            with self._lock:
                self._links.pop(connection, None)
            raise

    def _replace(self, old: socket.socket, new: socket.socket | Link) -> socket.socket:
        with self._lock:
            since = self._links.pop(old, None)
            if since is not None:
                self._links[new] = since
        if since is None or self._closing.is_set():  # given up meanwhile
            _interrupt(new)
        return old if isinstance(new, Link) else new

    def _serve(self, link: Link, beyond_limit: bool) -> None:
        if beyond_limit:
            error = StoreFull(
                f"the gateway of the store {self._identity.instance} has {self._max_connections} connections already"
            )
            link.send([pack_preamble()])
            link.send_frame(Kind.ERROR, 0, pack_error(error), last=True)
            raise error
        with link.time_limit(self._progress_seconds, "the handshake"):
            peer = welcome(link, self._identity, self._security, self._transport)
        connection = ServerConnection(link, self._services, peer.codecs if self._packs else ())
        with self._lock:
            if link not in self._links:
                raise Timeout(
                    f"its handshake had not ended in {HANDSHAKE_SECONDS:g} s when there were {self._max_connections} "
                    "connections"
                )
            self._links[link] = connection
        connection.serve(self._idle_seconds)

    def _tick_all(self) -> None:
        last_idle_check = time.monotonic()
        while not self._closing.wait(_TICK_SECONDS):
            with self._lock:
                connections = [each for each in self._links.values() if isinstance(each, ServerConnection)]
            for connection in connections:
                connection.tell_working()
            if time.monotonic() - last_idle_check > 1:
                last_idle_check = time.monotonic()
                self._pins.close_idle()


def _interrupt(link: Link | socket.socket) -> None:
    if isinstance(link, Link):
        link.interrupt()
        return
    with suppress(OSError):  # it has ended already
        socket.socket.shutdown(link, socket.SHUT_RDWR)
