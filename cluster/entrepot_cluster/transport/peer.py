"""A gateway's connections to one peer: opened when needed, shared by concurrent requests, closed when idle."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, StoreUnavailable, Timeout

from entrepot_cluster.transport.addresses import resolve, split_address
from entrepot_cluster.transport.endpoints import Held, Wanted
from entrepot_cluster.transport.frames import (
    MAX_WANTED,
    Kind,
    checked_id,
    field,
    pack_map,
    pack_wanted,
    parse_error,
    parse_map,
)
from entrepot_cluster.transport.handshake import Identity, introduce
from entrepot_cluster.transport.links import DEFAULT_PROGRESS_SECONDS, Link
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.ucx_wire import TCP, check_transport

IDLE_SECONDS = 60.0
_MAX_CONNECTIONS = 32


@dataclass(slots=True)
class _Idle:
    link: Link
    since: float


class PeerConnections:
    """Connections to the gateway at one address. Thread-safe; a context manager.

    A request has its connections to itself while it runs. ``connections`` are what a single fetch uses; concurrent
    requests open more, up to ``max_connections``, and then wait for each other.

    Args:
        address: ``host:port`` of the peer.
        identity: this gateway.
        instance: the instance that must be there; default: any.
        security: default: loopback addresses only, without any check.
        transport: ``"ucx"``: objects travel over UCX, if the peer offers it too. Default: ``"tcp"``.
        connections: of a single fetch. Default: 4.
        max_connections: of all requests together. Default: 32. Half of
            them are for the first connection of each request.
        progress_seconds: how long to wait for a connection, the handshake as a whole, and the next byte. Default: 10.
        idle_seconds: after which a connection that is not used is closed. Default: 60.

    Raises:
        InvalidArgument: the address is malformed, a number is out of range, or UCX is to be used with TLS.
        StoreUnavailable: UCX cannot be used here.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        *,
        instance: str = "",
        security: TransportSecurity | None = None,
        transport: str = TCP,
        connections: int = 4,
        max_connections: int = _MAX_CONNECTIONS,
        progress_seconds: float = DEFAULT_PROGRESS_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        if not 1 <= connections <= max_connections or progress_seconds <= 0:
            raise InvalidArgument(
                f"{connections} connections of at most {max_connections}, and {progress_seconds} s of waiting: there "
                "must be at least one connection, not more than the most, and a positive time"
            )
        self.address = address
        self.connections = connections
        self.progress_seconds = progress_seconds
        self._host, self._port = split_address(address)
        self._identity = identity
        self._instance = instance
        self._security = security or TransportSecurity()
        self._transport = check_transport(transport, self._security)
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._idle: list[_Idle] = []  # the most recently used last; guarded by _changed
        self._open = 0  # connections, idle ones and those being opened included; guarded by _changed
        self._closed = False  # guarded by _changed

    def ping(self, *, timeout: float | None = None) -> float:
        """Ask the peer for a sign of life.

        Returns:
            how long the answer took, in seconds, without connecting.

        Raises:
            EntrepotError: as for :meth:`have`.
        """
        with self.connected() as link:
            begin = time.perf_counter()
            self._ask(link, {"op": "ping"}, timeout)
            return time.perf_counter() - begin

    def have(self, wanted: Sequence[Wanted], *, timeout: float | None = None) -> list[Held | None]:
        """Ask which of these objects the peer has.

        Args:
            wanted: at most 65,536.
            timeout: for the answer, in seconds; default: as long as the peer says that it is working on it.

        Returns:
            for each object its generation and size; None: the peer does not have it.

        Raises:
            AccessDenied, VersionMismatch, InstanceLost: one of them refuses the other.
            Timeout, StoreUnavailable: the peer does not answer.
            CorruptData: its answer makes no sense.
        """
        answer = self._request({"op": "have", "wanted": _packed(wanted)}, timeout)
        return [_held(item) for item in _list(answer, "held", len(wanted))]

    def pull(
        self, wanted: Sequence[Wanted], address: str, instance: str, *, timeout: float | None = None
    ) -> list[EntrepotError | None]:
        """Have the peer fetch objects from the gateway at an address.

        Args:
            wanted: at most 4096.
            address: ``host:port`` of the gateway that has them, as the peer reaches it.
            instance: its store.
            timeout: as for :meth:`have`.

        Returns:
            for each object None, or why the peer does not have it now.

        Raises:
            EntrepotError: as for :meth:`have`.
        """
        return self._fetch_there("pull", wanted, address, instance, timeout)

    def replicate(
        self, wanted: Sequence[Wanted], address: str, instance: str, *, timeout: float | None = None
    ) -> list[EntrepotError | None]:
        """As :meth:`pull`, for copies of objects that stay where they are.

        Raises:
            InvalidArgument: the peer is older, and does not know this request.
            EntrepotError: as for :meth:`have`.
        """
        return self._fetch_there("replicate", wanted, address, instance, timeout)

    def discard_copies(
        self, lives: Sequence[Wanted], instance: str, role: int, *, timeout: float | None = None
    ) -> list[bool]:
        """Have the peer delete copies that it made for another store.

        Args:
            lives: of what they are copies, each by ID and generation in the store ``instance``.
            instance: see there.
            role: only those that are there for this reason (``entrepot.origins.Role``).
            timeout: as for :meth:`have`.

        Returns:
            for each, whether there was such a copy.

        Raises:
            InvalidArgument: the peer is older, and does not know this request.
            EntrepotError: as for :meth:`have`.
        """
        message = {"op": "discard_copies", "wanted": _packed(lives), "instance": instance, "role": int(role)}
        answer = self._request(message, timeout)
        return [item is True for item in _list(answer, "discarded", len(lives))]

    def discard(self, wanted: Sequence[Wanted], *, timeout: float | None = None) -> list[bool]:
        """Have the peer delete objects from its store.

        Returns:
            for each, whether it was there.

        Raises:
            EntrepotError: as for :meth:`have`.
        """
        answer = self._request({"op": "discard", "wanted": _packed(wanted)}, timeout)
        return [item is True for item in _list(answer, "discarded", len(wanted))]

    def stream(
        self,
        request: dict[str, Any],
        *,
        timeout: float | None = None,
        using: Callable[[Link | None], None] | None = None,
    ) -> dict[str, Any]:
        """Ask about a stream of the peer's store.

        Args:
            request: what the gateway there understands.
            timeout: as for :meth:`have`.
            using: called with the connection, so that it can be interrupted; with None when it is free again.

        Raises:
            EntrepotError: as for :meth:`have`, or as the peer answered.
        """
        with self.connected() as link:
            if using is None:
                return self._ask(link, {"op": "stream", **request}, timeout)
            using(link)
            try:
                return self._ask(link, {"op": "stream", **request}, timeout)
            finally:
                using(None)

    def collection(self, request: dict[str, Any], *, timeout: float | None = None) -> Any:
        """Have the peer answer a question about a collection, see :mod:`entrepot_cluster.gateway.collection_requests`.

        Raises:
            EntrepotError: as for :meth:`have`, or as the peer answered.
        """
        return self._request({"op": "collection", "request": request}, timeout).get("value")

    def close_idle(self, older_than: float | None = None) -> None:
        """Close connections that have not been used for a while; default: for ``idle_seconds``."""
        limit = time.monotonic() - (self._idle_seconds if older_than is None else older_than)
        with self._changed:
            old = [idle for idle in self._idle if idle.since <= limit]
            self._idle = [idle for idle in self._idle if idle.since > limit]
            self._open -= len(old)
            self._changed.notify_all()
        for idle in old:
            idle.link.close()

    def close(self) -> None:
        """Close idle connections; those in use end with their requests. Idempotent."""
        with self._changed:
            self._closed = True
        self.close_idle(0)

    def __enter__(self) -> PeerConnections:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def acquire(self, *, wait: bool = True) -> Link | None:
        """Take a connection: an idle one, or a new one.

        Args:
            wait: whether to wait if as many as allowed are in use. Otherwise, None is returned then, and also if less
                than half of them are left for requests that have none yet.

        Raises:
            EntrepotError: no connection could be made; as for :meth:`have`.
        """
        self.close_idle()
        with self._changed:
            if not wait and self._open - len(self._idle) >= max(self.connections, self._max_connections // 2):
                return None
            if not self._changed.wait_for(self._can_acquire, self.progress_seconds if wait else 0):
                if not wait:
                    return None
                raise Timeout(
                    f"all {self._max_connections} connections to {self._peer} have been in use for "
                    f"{self.progress_seconds:g} s"
                )
            if self._closed:
                raise StoreUnavailable(f"the connections to {self._peer} have been closed")
            while self._idle:
                link = self._idle.pop().link
                if link.is_quiet():
                    return link
                link.close()  # the peer has ended it meanwhile
                self._open -= 1
            self._open += 1
        try:
            return self._connect()
        except BaseException:
            self._forget()
            raise

    def release(self, link: Link, *, reusable: bool) -> None:
        """Return a connection.

        Args:
            link: from :meth:`acquire`.
            reusable: whether the answers to all requests on it have arrived.
        """
        if reusable:
            with self._changed:
                if not self._closed:
                    self._idle.append(_Idle(link, time.monotonic()))
                    self._changed.notify()
                    return
        link.close()
        self._forget()

    @contextmanager
    def connected(self) -> Iterator[Link]:
        """Context with a connection, which is closed if an exception leaves it."""
        link = self.acquire()
        assert link is not None
        reusable = False
        try:
            yield link
            reusable = True
        finally:
            self.release(link, reusable=reusable)

    def _can_acquire(self) -> bool:
        return self._closed or bool(self._idle) or self._open < self._max_connections

    def _forget(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()

    @property
    def _peer(self) -> str:
        return f"the gateway at {self.address}"

    def _connect(self) -> Link:
        error: OSError | None = None
        for family, numeric in resolve(self._host, self._port):
            self._security.check_address(numeric[0])
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.settimeout(self.progress_seconds)
            try:
                connection.connect(numeric)
            except OSError as failed:
                connection.close()
                error = failed
                continue
            return self._introduced(connection)
        if isinstance(error, TimeoutError):
            raise Timeout(f"{self._peer} cannot be reached in {self.progress_seconds:g} s") from error
        raise StoreUnavailable(f"{self._peer} cannot be reached: {error}") from error

    def _introduced(self, connection: socket.socket) -> Link:
        wrapped = self._security.wrap(connection, self._peer, server=False, seconds=self.progress_seconds)
        link = Link(wrapped, self._peer, self.progress_seconds)
        try:
            with link.time_limit(self.progress_seconds, "the handshake"):
                introduce(link, self._identity, self._security, self._instance, self._transport)
        except BaseException:
            link.close()
            raise
        return link

    def _fetch_there(
        self, operation: str, wanted: Sequence[Wanted], address: str, instance: str, timeout: float | None
    ) -> list[EntrepotError | None]:
        message = {"op": operation, "wanted": _packed(wanted), "address": address, "instance": instance}
        errors = _list(self._request(message, timeout), "errors", len(wanted))
        return [None if item is None else parse_error(item, f"{self._peer}: ") for item in errors]

    def _request(self, message: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        with self.connected() as link:
            return self._ask(link, message, timeout)

    def _ask(self, link: Link, message: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        link.send_frame(Kind.CONTROL, 1, pack_map(message))
        with link.time_limit(timeout, f"the request {message['op']!r}"):
            frame, meta = link.receive_head()
        if frame.kind == Kind.ERROR:
            raise parse_error(meta, f"{self._peer}: ")
        if frame.kind != Kind.REPLY or frame.request != 1 or frame.payload_bytes:
            raise CorruptData(f"{self._peer} answered {message['op']!r} by a {frame.kind.name} frame")
        return parse_map(meta)


def _packed(wanted: Sequence[Wanted]) -> bytes:
    if not 0 < len(wanted) <= MAX_WANTED:
        raise InvalidArgument(f"a request is for 1 to {MAX_WANTED} objects, not {len(wanted)}")
    for item in wanted:
        checked_id(item.id)
    return pack_wanted(wanted)


def _list(answer: dict[str, Any], key: str, count: int) -> list[Any]:
    items: list[Any] = field(answer, key, list)
    if len(items) != count:
        raise CorruptData(f"the peer answered for {len(items)} of {count} objects")
    return items


def _held(item: Any) -> Held | None:
    if item is None:
        return None
    if not isinstance(item, list) or len(item) != 2 or not all(type(value) is int and value >= 0 for value in item):
        raise CorruptData(f"the peer described an object that it has by {str(item)[:100]!r}")
    return Held(item[0], item[1])
