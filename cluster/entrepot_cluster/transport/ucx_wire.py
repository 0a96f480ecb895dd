"""Bytes over UCX, beside the TCP connection over which both gateways have introduced themselves.

UCX chooses among the devices that both hosts have: InfiniBand, RoCE, shared memory, TCP. It neither encrypts nor
authenticates; the TCP connection does the latter, and tells when the peer has gone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from entrepot.errors import CorruptData, InvalidArgument, StoreUnavailable

from entrepot_cluster.transport.frames import field
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.socket_wires import PlainWire
from entrepot_cluster.transport.wire import Wire

if TYPE_CHECKING:
    from entrepot_cluster._ucx import Channel

TCP, UCX = "tcp", "ucx"
TRANSPORTS = (TCP, UCX)
FLUSH_MS = 1000
TAG_BYTES = 8
_SETTINGS = "the environment variables UCX_TLS and UCX_NET_DEVICES say what it may use"


def check_transport(transport: str, security: TransportSecurity) -> str:
    """Return the name of a transport, if it can be used here.

    Raises:
        InvalidArgument: it is unknown, or UCX with TLS.
        StoreUnavailable: UCX is not part of this installation.
    """
    if transport not in TRANSPORTS:
        raise InvalidArgument(f"the transport {transport!r} is unknown: it is one of {', '.join(TRANSPORTS)}")
    if transport == UCX:
        if security.tls is not None:
            raise InvalidArgument("UCX does not encrypt: use the transport tcp with TLS, or a token without TLS")
        _channel(-1, 1).close()
    return transport


class UcxOffer:
    """One end of a connection that is to continue over UCX: what it tells the peer, and the peer's answer.

    A context manager, which gives UCX's resources back if an exception leaves it.

    Args:
        progress_seconds: time limit of the wire.
        wire: the TCP connection.
    """

    def __init__(self, wire: PlainWire, progress_seconds: float) -> None:
        self._wire = wire
        self._tag = secrets.token_bytes(TAG_BYTES)
        self._channel = _channel(wire.socket.fileno(), int(1000 * progress_seconds))

    def message(self) -> dict[str, Any]:
        """What the peer needs: where this end is, and what it marks messages with that are for it."""
        return {"address": self._channel.address, "tag": self._tag}

    def accept(self, message: object) -> UcxWire:
        """The wire, given the peer's message.

        Raises:
            CorruptData: it is no such message.
            StoreUnavailable: UCX finds no way to the peer.
        """
        if not isinstance(message, dict):
            raise CorruptData(f"the peer described its end of a UCX connection by {str(message)[:100]!r}")
        address, tag = field(message, "address", bytes), field(message, "tag", bytes)
        if not address or len(tag) != TAG_BYTES:
            raise CorruptData(f"the peer's UCX address has {len(address)} bytes, and its tag {len(tag)}")
        try:
            self._channel.connect(address, int.from_bytes(tag, "little"), int.from_bytes(self._tag, "little"))
        except RuntimeError as error:
            raise StoreUnavailable(f"{error}; {_SETTINGS}") from error
        return UcxWire(self._channel, self._wire)

    def __enter__(self) -> UcxOffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._channel.close()


class UcxWire(Wire):
    """A UCX endpoint.

    Args:
        channel: connected.
        beside: the TCP connection.
    """

    def __init__(self, channel: Channel, beside: PlainWire) -> None:
        self._channel = channel
        self._beside = beside

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        # The head by itself: then the payload is a message of its own, and arrives where it is to stay.
        return self._channel.send(buffers[:1]) + (self._channel.send(buffers[1:]) if len(buffers) > 1 else 0)

    def receive(self, pending: Sequence[memoryview]) -> int:
        return self._channel.receive(pending)

    def wait_readable(self, seconds: float) -> bool:
        try:
            return self._channel.wait_readable(int(1000 * seconds))
        except ConnectionResetError:
            return False  # how a peer says that it is done, as by closing a socket

    def has_room(self) -> bool:
        return self._channel.has_room()

    def is_quiet(self) -> bool:
        return self._channel.is_quiet()

    def interrupt(self) -> None:
        self._channel.interrupt()
        self._beside.interrupt()

    def close_after_reading(self) -> None:
        self._channel.flush(FLUSH_MS)
        self._beside.close_after_reading()
        self._channel.close()

    def close(self) -> None:
        self._beside.interrupt()
        self._channel.close()
        self._beside.close()


# UCX's own settings, read when its library is loaded; what the environment says takes precedence. By default, UCX
# replaces mmap and its kin in the whole process, so that it may keep memory registered with network cards (after which
# the child of a fork is without memory that Entrepot gives it), and handles fatal signals by itself.
_DEFAULTS = {"UCX_MEM_EVENTS": "n", "UCX_ERROR_SIGNALS": ""}


def _channel(socket: int, limit_ms: int) -> Channel:
    for variable, value in _DEFAULTS.items():
        os.environ.setdefault(variable, value)
    try:
        from entrepot_cluster._ucx import Channel
    except ImportError as error:
        raise StoreUnavailable(
            f"this installation has no UCX ({error}): install libucx0, and build Entrepot from source where libucx-dev "
            "is installed (docs/cluster-transport.md), or use the transport tcp"
        ) from error
    try:
        return Channel(socket, limit_ms)
    except RuntimeError as error:
        raise StoreUnavailable(f"{error}; {_SETTINGS}") from error
