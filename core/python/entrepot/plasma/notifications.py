"""Notifications of sealed and deleted Plasma objects.

    running ──disconnect──▶ ended
       ├──the subscriber does not read──▶ ended
       └──the store cannot be reached──▶ ended

What this process does itself is reported at once. The store has no feed of events, so what other processes do is found
by comparing lists of its objects, at most ten times a second: those reports come a little later, and an object that
another process seals and deletes between two lists is not reported.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot._client.queries import iter_objects
from entrepot._codecs.plasma_objects import TREE
from entrepot.errors import EntrepotError, InvalidArgument, ObjectLost, ObjectNotFound, StoreUnavailable

if TYPE_CHECKING:
    from entrepot import _core

Notification = tuple[bytes, int, int]
"""Binary ID, bytes of data, bytes of metadata; both -1 if the object was deleted."""

DELETED = -1
MAX_UNREAD = 1 << 20
_DISCONNECTED = "the client was disconnected"
_LIST_SECONDS = 0.1  # least time between the beginnings of two lists
_LIST_SHARE = 0.1  # most of the time that is spent on lists
_LENGTH = struct.Struct("<q")
_BODY = struct.Struct("<20sqq")
# Sent at once: whole notifications, and few enough that the kernel delivers them as a whole. Readers of the socket, as
# pyarrow's own tests, expect that one recv() gets all of a notification.
_PART_BYTES = 64 * (_LENGTH.size + _BODY.size)
_log = logging.getLogger("entrepot")

# Replaced, never modified; by store address. A forked child has none: their threads are the parent's.
_subscriptions: dict[str, tuple[Subscription, ...]] = {}
_subscriptions_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _subscriptions, _subscriptions_lock
    _subscriptions, _subscriptions_lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Subscription:
    """One client's notifications: what its socket carries, and the thread that writes to it.

    Args:
        raw: the store.
        session: a session of it.
        address: its address.

    Attributes:
        reader: the socket to read from; each notification is a length of 8 bytes and what :func:`decode` takes.
    """

    def __init__(self, raw: _core.Client, session: int, address: str) -> None:
        self._raw = raw
        self._session = session
        self._address = address
        self.reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._changed = threading.Condition()
        self._unread: deque[bytes] = deque()  # guarded by _changed, like the next three
        self._known_objects: dict[bytes, tuple[int, bool]] = {}  # by ID: generation, and whether it is a Plasma object
        self._ended = False
        self._failure = _DISCONNECTED  # why it ended
        self._thread = threading.Thread(target=self._run, name="entrepot-plasma-notifications", daemon=True)
        with _subscriptions_lock:
            _subscriptions[address] = (*_subscriptions.get(address, ()), self)
        self._thread.start()

    def sealed(self, binary: bytes, generation: int, data: int, metadata: int) -> None:
        """Report that this process sealed an object."""
        with self._changed:
            if self._known_objects.get(binary, (0, False))[0] != generation:
                self._known_objects[binary] = (generation, True)
                self._report((binary, data, metadata))

    def deleted(self, binary: bytes, generation: int | None = None) -> None:
        """Report that this process deleted an object; with a generation, only if it was that one."""
        with self._changed:
            entry = self._known_objects.get(binary)
            if entry is not None and generation in (None, entry[0]):
                self._forget(binary)

    def next(self) -> Notification:
        """Wait for the next notification and return it.

        Raises:
            StoreUnavailable: the subscription has ended.
        """
        content = self._receive(_LENGTH.unpack(self._receive(_LENGTH.size))[0])
        return decode(content)[0]

    def end(self) -> None:
        """End it: the reader gets what was sent, and then the end of the stream. Idempotent."""
        with self._changed:
            self._stop(_DISCONNECTED)

    def _receive(self, length: int) -> bytes:
        content = b""
        while len(content) < length:
            part = self.reader.recv(length - len(content))
            if not part:
                raise StoreUnavailable(f"there are no more notifications: {self._failure}")
            content += part
        return content

    # --- requires _changed

    def _report(self, notification: Notification) -> None:
        if len(self._unread) >= MAX_UNREAD:
            return self._stop(f"the subscriber let more than {MAX_UNREAD} notifications wait")
        self._unread.append(encode(notification))
        self._changed.notify()
        return None

    def _stop(self, reason: str) -> None:
        if self._ended:
            return
        self._ended, self._failure = True, reason
        self._changed.notify()
        self._writer.shutdown(socket.SHUT_RDWR)  # also ends a send that waits for the reader

    def _forget(self, binary: bytes) -> None:
        _, is_plasma = self._known_objects.pop(binary)
        if is_plasma:
            self._report((binary, DELETED, DELETED))

    # --- in the thread

    def _run(self) -> None:
        try:
            self._serve()
        except (EntrepotError, OSError) as error:
            with self._changed:
                self._stop(f"{error}")
        finally:
            self._unregister()
        if self._failure != _DISCONNECTED:
            _log.warning("there are no more notifications of Plasma objects at %s: %s", self._address, self._failure)

    def _serve(self) -> None:
        next_list = time.monotonic()
        while True:
            with self._changed:
                pause = next_list - time.monotonic()
                self._changed.wait_for(lambda: self._unread or self._ended, max(pause, 0))
                if self._ended:
                    return
                unread = b"".join(self._unread)
                self._unread.clear()
            for start in range(0, len(unread), _PART_BYTES):
                self._writer.sendall(unread[start : start + _PART_BYTES])
            began = time.monotonic()
            if began >= next_list:
                self._list()
                next_list = began + max(_LIST_SECONDS, (time.monotonic() - began) / _LIST_SHARE)

    def _unregister(self) -> None:
        with _subscriptions_lock:
            others = tuple(each for each in _subscriptions.get(self._address, ()) if each is not self)
            if others:
                _subscriptions[self._address] = others
            else:
                _subscriptions.pop(self._address, None)

    def _list(self) -> None:
        with self._changed:
            before = {binary: entry[0] for binary, entry in self._known_objects.items()}
        records = iter_objects(self._raw, self._session, all_sessions=True)
        listed = {bytes.fromhex(record["id"]): int(record["generation"]) for record in records}
        with self._changed:  # what this process did meanwhile has been reported
            for binary, generation in before.items():
                if listed.get(binary) == generation or self._known_objects.get(binary, (0, False))[0] != generation:
                    continue
                if self._raw.generation_of(binary) != generation:
                    self._forget(binary)
            for binary, generation in sorted(listed.items(), key=lambda item: item[1]):
                if self._known_objects.get(binary, (0, False))[0] != generation:
                    self._add(binary, generation)

    def _add(self, binary: bytes, generation: int) -> None:
        try:
            tree, lengths, current = self._raw.buffer_lengths(binary)
        except (ObjectNotFound, ObjectLost):
            return
        if current != generation:
            return  # the next list has it
        is_plasma = tree == TREE
        self._known_objects[binary] = (generation, is_plasma)
        if is_plasma:
            self._report((binary, lengths[0], lengths[1]))


def sealed(address: str, binary: bytes, generation: int, data: int, metadata: int) -> None:
    """Tell the subscriptions of this process that it sealed an object."""
    for subscription in _subscriptions.get(address, ()):
        subscription.sealed(binary, generation, data, metadata)


def deleted(address: str, binary: bytes, generation: int | None = None) -> None:
    """Tell the subscriptions of this process that it deleted an object."""
    for subscription in _subscriptions.get(address, ()):
        subscription.deleted(binary, generation)


def encode(notification: Notification) -> bytes:
    """Return a notification as the socket carries it."""
    body = _BODY.pack(*notification)
    return _LENGTH.pack(len(body)) + body


def decode(content: bytes | memoryview) -> Sequence[Notification]:
    """Return the notifications in what was read from the socket, without the length before it.

    Raises:
        InvalidArgument: it is something else.
    """
    size = len(content)
    if size == 0 or size % _BODY.size:
        raise InvalidArgument(f"a notification has a multiple of {_BODY.size} bytes, but got {size}")
    return [(binary, data, metadata) for binary, data, metadata in _BODY.iter_unpack(content)]
