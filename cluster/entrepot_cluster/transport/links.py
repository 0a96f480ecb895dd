"""A connection's bytes: sent from and received into given memory, with a time limit for progress.

No byte for ``progress_seconds`` is a :class:`~entrepot.errors.Timeout`, however many are still to come. A plain
connection leaves waiting to the kernel (``SO_RCVTIMEO``, ``MSG_WAITALL``), so that a piece of a MiB takes one call.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from entrepot import _core
from entrepot.errors import CorruptData, EntrepotError, StoreUnavailable, Timeout

from entrepot_cluster.transport.frames import (
    HEADER_BYTES,
    Frame,
    Kind,
    check_meta,
    pack_head,
    parse_header,
)
from entrepot_cluster.transport.security import close_after_reading, tls_refusal

if TYPE_CHECKING:
    from entrepot_cluster.transport.endpoints import SourceObject

DEFAULT_PROGRESS_SECONDS = 10.0
_MOST_BUFFERS = 1000  # the kernel takes 1024 in one call
_JOINED_BYTES = 64 << 10  # up to this size, TLS gets buffers joined
_TCP_INFO_BYTES = 168  # of the kernel's struct tcp_info, up to the end of tcpi_delivery_rate
_ACKED, _DELIVERY_RATE = 120, 160  # offsets of tcpi_bytes_acked and tcpi_delivery_rate in it, 64 bits each
_APP_LIMITED = 7  # offset of the byte whose lowest bit is tcpi_delivery_rate_app_limited


class Link:
    """A connection to a peer.

    One thread receives at a time, and one sends; they may be different ones. :meth:`interrupt` may be called from any.

    Args:
        connection: a connected stream socket, plain or TLS; the link owns it from now on.
        peer: how errors and log lines call the other end.
        progress_seconds: how long to wait for the next byte, in either direction.
    """

    def __init__(
        self, connection: socket.socket, peer: str, progress_seconds: float = DEFAULT_PROGRESS_SECONDS
    ) -> None:
        self._socket = connection
        self.peer = peer
        self.progress_seconds = progress_seconds
        self.received_bytes = 0  # by the receiving thread
        self.sent_bytes = 0  # by the sending thread
        self._header = bytearray(HEADER_BYTES)  # of the receiving thread
        self._tls = isinstance(connection, ssl.SSLSocket)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls:
            connection.settimeout(progress_seconds)
        else:
            limit = struct.pack("@qq", int(progress_seconds), int(progress_seconds % 1 * 1e6))
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send all bytes of all buffers.

        Raises:
            Timeout: the peer accepts none any more.
            StoreUnavailable: the connection has ended.
        """
        try:
            if self._tls:
                self._send_tls(buffers)
            else:
                self._send_plain(buffers)
        except (BlockingIOError, TimeoutError) as error:
            raise Timeout(f"{self.peer} has not read a byte for {self.progress_seconds:g} s") from error
        except OSError as error:
            raise self._ended(error) from error

    def send_objects(self, head: bytes, objects: Sequence[SourceObject]) -> None:
        """Send a frame whose payload is the buffers of objects; as :meth:`send`."""
        if self._tls:
            self.send([head, *(buffer for each in objects for buffer in each.buffers)])
            return
        try:
            self.sent_bytes += _core.send_objects(self._socket.fileno(), head, [each.pinned for each in objects])
        except (BlockingIOError, TimeoutError) as error:
            raise Timeout(f"{self.peer} has not read a byte for {self.progress_seconds:g} s") from error
        except OSError as error:
            raise self._ended(error) from error

    def _send_plain(self, buffers: Sequence[bytes | memoryview]) -> None:
        pending = list(buffers)
        while pending:
            sent = self._socket.sendmsg(pending[:_MOST_BUFFERS])
            self.sent_bytes += sent
            _drop_front(pending, sent)

    def _send_tls(self, buffers: Sequence[bytes | memoryview]) -> None:
        joined: list[bytes | memoryview] = []
        size = 0
        for buffer in buffers:
            if size + len(buffer) > _JOINED_BYTES and joined:
                self._socket.sendall(b"".join(joined))
                joined, size = [], 0
            if len(buffer) > _JOINED_BYTES:
                for start in range(0, len(buffer), _JOINED_BYTES):  # so that the time limit is one for progress
                    self._socket.sendall(memoryview(buffer)[start : start + _JOINED_BYTES])
            else:
                joined.append(buffer)
                size += len(buffer)
            self.sent_bytes += len(buffer)
        if joined:
            self._socket.sendall(b"".join(joined))

    def receive(self, into: memoryview | bytearray) -> None:
        """Receive until the buffer is full.

        Raises:
            Timeout: nothing arrives any more.
            StoreUnavailable: the connection has ended.
        """
        self.receive_many([memoryview(into)])

    def receive_many(self, into: Sequence[memoryview]) -> None:
        """Receive until all buffers are full, one after another; as :meth:`receive`."""
        pending = [view for view in into if len(view)]
        try:
            while pending:
                if self._tls:
                    got = self._socket.recv_into(pending[0])
                elif len(pending) == 1:
                    got = self._socket.recv_into(pending[0], 0, socket.MSG_WAITALL)
                else:
                    got = self._socket.recvmsg_into(pending[:_MOST_BUFFERS], 0, socket.MSG_WAITALL)[0]
                if not got:
                    raise StoreUnavailable(f"{self.peer} has closed the connection")
                self.received_bytes += got
                _drop_front(pending, got)
        except (BlockingIOError, TimeoutError) as error:
            raise Timeout(f"{self.peer} has sent no byte for {self.progress_seconds:g} s") from error
        except OSError as error:
            if isinstance(error, StoreUnavailable):
                raise
            raise self._ended(error) from error

    def wait_readable(self, seconds: float) -> bool:
        """Wait for the first byte of a frame, for at most ``seconds``; False: it has not come, or never will.

        Raises:
            StoreUnavailable: the connection broke.
        """
        end = time.monotonic() + seconds
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                return self._wait_tls(self._socket, seconds)
            while time.monotonic() < end:
                try:
                    return bool(self._socket.recv(1, socket.MSG_PEEK))
                except BlockingIOError:
                    continue
        except OSError as error:
            raise self._ended(error) from error
        return False

    def _ended(self, error: OSError) -> EntrepotError:
        if isinstance(error, ssl.SSLError):
            return tls_refusal(error, self.peer)
        return StoreUnavailable(f"the connection to {self.peer} has ended: {error}")

    def _wait_tls(self, connection: ssl.SSLSocket, seconds: float) -> bool:
        if connection.pending():
            return True
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def receive_head(self, limit: int | None = None) -> tuple[Frame, bytearray]:
        """Receive a frame's header and meta, skipping notices that the peer is at work.

        Args:
            limit: of the meta, in bytes; default: the protocol's.

        Raises:
            CorruptData: what arrived is no frame, or was changed on the way.
            Timeout, StoreUnavailable: as for :meth:`receive`.
        """
        while True:
            self.receive(self._header)
            frame = parse_header(self._header)
            if limit is not None and frame.meta_bytes > limit:
                raise CorruptData(f"the peer announced {frame.meta_bytes} bytes in a handshake; at most {limit}")
            meta = bytearray(frame.meta_bytes)
            self.receive(meta)
            check_meta(meta, frame)
            if frame.kind != Kind.WORKING:
                return frame, meta

    def send_frame(self, kind: Kind, request: int, meta: bytes = b"", *, last: bool = False) -> None:
        """Send a frame without payload; as :meth:`send`."""
        self.send([pack_head(kind, request, meta, last=last)])

    def delivery_rate(self, known_after_bytes: int) -> float | None:
        """Bytes per second that have lately reached the peer, as the kernel measures it.

        Returns:
            None: not known, because the peer has confirmed less than ``known_after_bytes``, there was too little to
            send to measure it, or the kernel is older.
        """
        try:
            values = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return None  # it has ended; whoever sends next finds out why
        if len(values) < _TCP_INFO_BYTES or struct.unpack_from("@Q", values, _ACKED)[0] < known_after_bytes:
            return None
        if values[_APP_LIMITED] & 1:
            return None
        return float(struct.unpack_from("@Q", values, _DELIVERY_RATE)[0]) or None

    def has_room(self) -> bool:
        """Whether a small frame can be sent without waiting for the peer to read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        return bool(poll.poll(0))

    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived on it; an idle one has nothing to say."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLRDHUP)
        return not poll.poll(0)

    @contextmanager
    def time_limit(self, seconds: float | None, what: str) -> Iterator[None]:
        """Context that ends the connection if it takes longer than that, whatever arrives; None: no limit.

        Raises:
            Timeout: it took longer.
        """
        if seconds is None:
            yield
            return
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.interrupt()

        watchdog = threading.Timer(seconds, expire)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except StoreUnavailable as error:
            if expired.is_set():
                raise Timeout(f"{what} with {self.peer} has not ended in {seconds:g} s") from error
            raise
        finally:
            watchdog.cancel()

    def interrupt(self) -> None:
        """End the connection at once: whoever is waiting on it gets :class:`StoreUnavailable`."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close_after_reading(self) -> None:
        """Close the connection so that the peer gets what was sent last; takes up to a second."""
        close_after_reading(self._socket)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.interrupt()
        self._socket.close()


def _drop_front(pending: list[bytes | memoryview] | list[memoryview], done: int) -> None:
    """Take the first ``done`` bytes off a list of buffers."""
    count = 0
    while count < len(pending) and done >= len(pending[count]):
        done -= len(pending[count])
        count += 1
    del pending[:count]
    if done:
        pending[0] = memoryview(pending[0])[done:]
