"""Bounds what unfinished requests may hold: the time for a request's head, and the connections that have sent none.

waiting ──a whole head──▶ answering ──answered──▶ waiting
waiting ──HEAD_TIMEOUT, or the oldest of more than MAX_CONNECTIONS──▶ closed

Heads are sent before the token can be checked, so anybody who reaches the server can begin one. uvicorn has no time-out
for that, and its ``limit_concurrency`` refuses whoever comes last, who may be the one with the token.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEAD_TIMEOUT = 5.0  # seconds
MAX_CONNECTIONS = 200
MAX_ANSWERING = 250  # uvicorn's limit; above MAX_CONNECTIONS, because connections that were closed count for a moment


class ConnectionLimits:
    """The connections of one server that wait for a request's head. Of the event loop's thread."""

    def __init__(self) -> None:
        self._open = 0
        self._waiting: dict[BoundedProtocol, asyncio.TimerHandle] = {}  # the one that has waited longest is first

    def protocol(self, **arguments: Any) -> BoundedProtocol:
        """Make the protocol of a new connection, from uvicorn's arguments."""
        return BoundedProtocol(self, **arguments)

    def opened(self, connection: BoundedProtocol) -> None:
        """Count a connection, and close the one that has waited longest if there are too many."""
        self._open += 1
        if self._open > MAX_CONNECTIONS and self._waiting:
            self._close(next(iter(self._waiting)))
        self.waits(connection)

    def closed(self, connection: BoundedProtocol) -> None:
        """Forget a connection."""
        self._open -= 1
        self.answers(connection)

    def waits(self, connection: BoundedProtocol) -> None:
        """The connection has no request; it gets ``HEAD_TIMEOUT`` seconds for the next one's head."""
        self.answers(connection)
        self._waiting[connection] = connection.loop.call_later(HEAD_TIMEOUT, self._close, connection)

    def answers(self, connection: BoundedProtocol) -> None:
        """A whole head has arrived: the time for it is over."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _close(self, connection: BoundedProtocol) -> None:
        self.answers(connection)
        connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with limits.

    Args:
        limits: of the server.
        arguments: uvicorn's.
    """

    def __init__(self, limits: ConnectionLimits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._running = 0  # requests; with pipelining, the next one begins before the last one's task has ended
        self._server_app = self.app
        self.app = self._run

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._limits.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._limits.closed(self)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._running += 1
        self._limits.answers(self)
        try:
            await self._server_app(scope, receive, send)
        finally:
            self._running -= 1
            if self._running == 0 and not self.transport.is_closing():
                self._limits.waits(self)
