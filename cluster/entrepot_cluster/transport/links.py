"""A connection's frames, with time limits for progress.

No byte for ``progress_seconds`` is a :class:`~entrepot.errors.Timeout`, however many are still to come.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from entrepot.errors import CorruptData, EntrepotError, StoreUnavailable, Timeout

from entrepot_cluster.transport.frames import (
    HEADER_BYTES,
    Frame,
    Kind,
    check_meta,
    pack_head,
    parse_header,
)
from entrepot_cluster.transport.security import tls_refusal
from entrepot_cluster.transport.socket_wires import wire_over
from entrepot_cluster.transport.wire import Wire, drop_front

if TYPE_CHECKING:
    from entrepot_cluster.transport.endpoints import SourceObject

DEFAULT_PROGRESS_SECONDS = 10.0


class Link:
    """A connection to a peer.

    One thread receives at a time, and one sends; they may be different ones. :meth:`interrupt` may be called from any.

    Args:
        connection: a connected stream socket, plain or TLS; the link owns it from now on.
        peer: how errors and log lines call the other end.
        progress_seconds: how long to wait for the next byte, in either direction.

    Attributes:
        wire: what carries the bytes; another one after the handshake, if both ends agree on it there.
    """

    def __init__(
        self, connection: socket.socket, peer: str, progress_seconds: float = DEFAULT_PROGRESS_SECONDS
    ) -> None:
        self.wire: Wire = wire_over(connection, progress_seconds)
        self.peer = peer
        self.progress_seconds = progress_seconds
        self.received_bytes = 0  # by the receiving thread
        self.sent_bytes = 0  # by the sending thread
        self._header = bytearray(HEADER_BYTES)  # of the receiving thread

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send all bytes of all buffers.

        Raises:
            Timeout: the peer accepts none any more.
            StoreUnavailable: the connection has ended.
        """
        self._send(lambda: self.wire.send(buffers))

    def send_objects(self, head: bytes, objects: Sequence[SourceObject]) -> None:
        """Send a frame whose payload is the buffers of objects; as :meth:`send`."""
        self._send(lambda: self.wire.send_objects(head, objects))

    def _send(self, call: Callable[[], int]) -> None:
        try:
            self.sent_bytes += call()
        except (BlockingIOError, TimeoutError) as error:
            raise Timeout(f"{self.peer} has not read a byte for {self.progress_seconds:g} s") from error
        except OSError as error:
            raise self._ended(error) from error

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
                received = self.wire.receive(pending)
                if not received:
                    raise StoreUnavailable(f"{self.peer} has closed the connection")
                self.received_bytes += received
                drop_front(pending, received)
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
        try:
            return self.wire.wait_readable(seconds)
        except OSError as error:
            raise self._ended(error) from error

    def _ended(self, error: OSError) -> EntrepotError:
        if isinstance(error, ssl.SSLError):
            return tls_refusal(error, self.peer)
        return StoreUnavailable(f"the connection to {self.peer} has ended: {error}")

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
            send to measure it, the kernel is older, or the wire is no plain TCP connection.
        """
        return self.wire.delivery_rate(known_after_bytes)

    def has_room(self) -> bool:
        """Whether a small frame can be sent without waiting for the peer to read."""
        return self.wire.has_room()

    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived on it; an idle one has nothing to say."""
        return self.wire.is_quiet()

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
        self.wire.interrupt()

    def close_after_reading(self) -> None:
        """Close the connection so that the peer gets what was sent last; takes up to a second."""
        self.wire.close_after_reading()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.wire.close()
