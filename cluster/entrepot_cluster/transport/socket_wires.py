"""Bytes over a TCP connection, plain or with TLS.

A plain connection leaves waiting to the kernel (``SO_RCVTIMEO``, ``MSG_WAITALL``), so that a piece of a MiB takes one
call.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot import _core

from entrepot_cluster.transport.security import close_after_reading
from entrepot_cluster.transport.wire import Wire, drop_front

if TYPE_CHECKING:
    from entrepot_cluster.transport.endpoints import SourceObject

_MOST_BUFFERS = 1000  # the kernel takes 1024 in one call
_JOINED_BYTES = 64 << 10  # up to this size, TLS gets buffers joined
_TCP_INFO_BYTES = 168  # of the kernel's struct tcp_info, up to the end of tcpi_delivery_rate
_ACKED, _DELIVERY_RATE = 120, 160  # offsets of tcpi_bytes_acked and tcpi_delivery_rate in it, 64 bits each
_APP_LIMITED = 7  # offset of the byte whose lowest bit is tcpi_delivery_rate_app_limited


def wire_over(connection: socket.socket, progress_seconds: float) -> Wire:
    """The wire over a connected stream socket, which owns it from now on."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if isinstance(connection, ssl.SSLSocket):
        return TlsWire(connection, progress_seconds)
    return PlainWire(connection, progress_seconds)


class SocketWire(Wire):
    """What plain and TLS connections have in common.

    Args:
        connection: a connected stream socket.

    Attributes:
        socket: the same.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def has_room(self) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLOUT)
        return bool(poll.poll(0))

    def is_quiet(self) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLRDHUP)
        return not poll.poll(0)

    def interrupt(self) -> None:
        try:
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close_after_reading(self) -> None:
        close_after_reading(self.socket)

    def close(self) -> None:
        self.interrupt()
        self.socket.close()


class PlainWire(SocketWire):
    """A blocking socket.

    Args:
        connection: a connected stream socket.
        progress_seconds: how long to wait for the next byte, in either direction.
    """

    def __init__(self, connection: socket.socket, progress_seconds: float) -> None:
        super().__init__(connection)
        limit = struct.pack("@qq", int(progress_seconds), int(progress_seconds % 1 * 1e6))
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        pending = list(buffers)
        total = 0
        while pending:
            sent = self.socket.sendmsg(pending[:_MOST_BUFFERS])
            total += sent
            drop_front(pending, sent)
        return total

    def send_objects(self, head: bytes, objects: Sequence[SourceObject]) -> int:
        return _core.send_objects(self.socket.fileno(), head, [each.pinned for each in objects])

    def receive(self, pending: Sequence[memoryview]) -> int:
        if len(pending) == 1:
            return self.socket.recv_into(pending[0], 0, socket.MSG_WAITALL)
        return self.socket.recvmsg_into(pending[:_MOST_BUFFERS], 0, socket.MSG_WAITALL)[0]

    def wait_readable(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                return bool(self.socket.recv(1, socket.MSG_PEEK))
            except BlockingIOError:
                continue
        return False

    def delivery_rate(self, known_after_bytes: int) -> float | None:
        try:
            values = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return None  # it has ended; whoever sends next finds out why
        if len(values) < _TCP_INFO_BYTES or struct.unpack_from("@Q", values, _ACKED)[0] < known_after_bytes:
            return None
        if values[_APP_LIMITED] & 1:
            return None
        return float(struct.unpack_from("@Q", values, _DELIVERY_RATE)[0]) or None


class TlsWire(SocketWire):
    """A TLS connection.

    Args:
        connection: after TLS's own handshake.
        progress_seconds: how long to wait for the next byte, in either direction.
    """

    def __init__(self, connection: ssl.SSLSocket, progress_seconds: float) -> None:
        super().__init__(connection)
        self._tls = connection
        connection.settimeout(progress_seconds)

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        joined: list[bytes | memoryview] = []
        size = total = 0
        for buffer in buffers:
            if size + len(buffer) > _JOINED_BYTES and joined:
                self._tls.sendall(b"".join(joined))
                joined, size = [], 0
            if len(buffer) > _JOINED_BYTES:
                for start in range(0, len(buffer), _JOINED_BYTES):  # so that the time limit is one for progress
                    self._tls.sendall(memoryview(buffer)[start : start + _JOINED_BYTES])
            else:
                joined.append(buffer)
                size += len(buffer)
            total += len(buffer)
        if joined:
            self._tls.sendall(b"".join(joined))
        return total

    def receive(self, pending: Sequence[memoryview]) -> int:
        return self._tls.recv_into(pending[0])

    def wait_readable(self, seconds: float) -> bool:
        if self._tls.pending():
            return True
        poll = select.poll()
        poll.register(self._tls, select.POLLIN)
        return bool(poll.poll(1000 * seconds))
