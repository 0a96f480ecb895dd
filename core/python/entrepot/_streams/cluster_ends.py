"""Writers and readers of a stream whose home is another store. See ``relays``."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from entrepot._client.arguments import copy_mode_number, timeout_seconds
from entrepot._streams.reader import StreamReader
from entrepot._streams.relays import ACK, CHUNK, CLOSED, MESSAGES, NEXT, SEND_SECONDS, Home, Relays, window
from entrepot._streams.writer import StreamWriter
from entrepot.errors import EntrepotError, StreamFailed, StreamLost
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._streams.store_access import StreamStore
    from entrepot.codec import CopyMode


class ClusterWriter(StreamWriter):
    """A writer whose stream is in another store. States as of :class:`StreamWriter`.

    It has a few chunks on their way, each of which the gateway reports as done when it is in the stream.
    """

    def __init__(self, store: StreamStore, home: Home) -> None:
        self._name = home.name
        self._lock = threading.Lock()
        self._window = window(home)
        self._on_the_way = 0  # guarded by _lock
        self._number = None  # of the relay's writer instead
        self._relays = Relays(store, home, {"kind": "writer"}, self._window)

    def put(self, value: Any, *, timeout: float | None = None) -> ObjectID:
        """Append a value to the stream, waiting until one that was put before has room there.

        Args:
            value: as for ``Store.put``.
            timeout: seconds to wait for those before, and the same for memory here; None: no limit for the first, 30 s
                for memory.

        Returns:
            an ID that leads nowhere: the chunk gets one of its own where the stream is.

        Raises:
            Timeout: there was no room in time. The value was not appended.
            StoreUnavailable, InstanceLost: the stream cannot be reached any more; it fails.
            StreamFailed, StreamLost, InvalidArgument, StoreFull, UnsupportedType: as :meth:`StreamWriter.put`.
        """
        deadline = time.monotonic() + timeout_seconds(timeout)
        outgoing = self._relays.outgoing
        outgoing._checked_number()
        with self._lock:
            outgoing._checked_number()
            self._relays.check()
            while self._on_the_way >= self._window:
                self._relays.receive(deadline)
                self._on_the_way -= 1
            try:
                oid = outgoing.put(value, timeout=timeout)
            except StreamLost:
                raise
            except StreamFailed:
                while True:
                    self._relays.receive(time.monotonic() + SEND_SECONDS)  # says why
            self._on_the_way += 1
        return oid

    def close(self) -> None:
        """Say that this writer has written everything, and wait until the stream has it. Closing twice is harmless.

        Raises:
            StoreUnavailable, InstanceLost: the stream cannot be reached any more; it fails.
            StreamFailed, StreamLost, InvalidArgument: as :meth:`StreamWriter.close`.
        """
        outgoing = self._relays.outgoing
        if outgoing.closed:
            return
        outgoing._checked_number()
        with self._lock:
            try:
                self._relays.check()
                outgoing.close()
                while self._relays.receive(float("inf"))[0] != CLOSED:
                    pass
            finally:
                outgoing.abort("it could not be closed")  # if so
                self._relays.close()

    def abort(self, reason: str = "it was aborted") -> None:
        """As :meth:`StreamWriter.abort`."""
        self._relays.outgoing.abort(reason)

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._relays.outgoing.closed


class ClusterReader(StreamReader):
    """A reader whose stream is in another store. States and attributes as of :class:`StreamReader`."""

    def __init__(self, store: StreamStore, home: Home, group: str, late: bool) -> None:
        self._lock = threading.Lock()
        self._in_hand: int | None = None  # guarded by _lock
        self._asked = False  # guarded by _lock: for a chunk that was not returned yet
        self._header: list[Any] | None = None  # guarded by _lock: of a chunk that is here and was not returned yet
        self._number = None  # of the relay's reader instead
        self.group = group
        self.position = None
        self.redelivered = False
        self._relays = Relays(store, home, {"kind": "reader", "group": group, "late": late}, MESSAGES)
        self.missed = int(self._relays.answer["missed"])

    def get(self, *, timeout: float | None = None, copy: CopyMode = "never") -> Any:
        """Return the next value, waiting for it; what was returned before counts as consumed from now on.

        After a ``Timeout``, the chunk that was asked for may arrive later, and waits here for the next get.

        Raises:
            StoreUnavailable, InstanceLost: the stream cannot be reached any more. What was not consumed goes back to
                the group.
            StreamEnded, Timeout, StreamFailed, StreamLost, InvalidArgument and others: as :meth:`StreamReader.get`.
        """
        deadline = time.monotonic() + timeout_seconds(timeout)
        copy_mode_number(copy)
        relays = self._relays
        relays.outgoing._checked_number()
        with self._lock:
            relays.outgoing._checked_number()
            if not self._asked:
                relays.send([NEXT, self._in_hand])
                self._asked, self._in_hand = True, None
            if self._header is None:
                message = relays.receive(deadline)
                assert message[0] == CHUNK, message
                self._header = message
            value = relays.take(deadline, copy)
            _, self.position, self.redelivered = self._header
            self._in_hand, self._header, self._asked = self.position, None, False
        return value

    def ack(self) -> None:
        """As :meth:`StreamReader.ack`; does not wait for the home."""
        self._relays.outgoing._checked_number()
        with self._lock:
            self._relays.outgoing._checked_number()
            if self._in_hand is not None:
                self._relays.send([ACK, self._in_hand])
                self._in_hand = None

    def close(self) -> None:
        """As :meth:`StreamReader.close`; a gateway or home that does not answer within a second does it later."""
        outgoing = self._relays.outgoing
        if not outgoing.closed:
            try:
                outgoing.close()
                self._relays.wait_until_closed()
            except EntrepotError:
                outgoing.abort()  # the gateway is gone
        self._relays.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._relays.outgoing.closed

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and not self.closed:
                self.ack()
        finally:
            self.close()
