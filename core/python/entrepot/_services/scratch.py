"""Scratch sets: pages that one writer may change, and that the store may move to disk between two changes.

A page::

    (zeros) ──write──▶ open ──too many are open──▶ sealed, so that it can be moved to disk
                        ▲                             │
                        └────────────write────────────┘

Sealed objects never change: a page that is written again is copied into new memory first, and its object is deleted.
Pages that are changed often stay open. All of it belongs to its one writer, and ends with it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, SupportsIndex

from entrepot import _core
from entrepot._client.arguments import checked_integer, checked_name
from entrepot._daemon.units import parse_size
from entrepot._services.manifest import PREFIX_BYTES
from entrepot._services.shuffle_layout import checked_layout_number
from entrepot._streams.stream import Stream, StreamArguments
from entrepot.errors import InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreUnavailable, StreamFailed
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from typing_extensions import Self

    from entrepot._codecs.blob import BlobWriter
    from entrepot._services.store_access import ServiceStore

_SET = "scratch"
_MAX_PAGES = 1 << 20
_MIN_PAGE_BYTES, _MAX_PAGE_BYTES = 32 << 10, 1 << 30
_OPEN_SHARE = 8  # pages that are open take at most this part of the store by default


class ScratchSet:
    """Pages of one writer. Created by :meth:`Store.scratch`; a context manager that deletes them. Thread-safe.

    Attributes:
        name: its name within the session.
        pages: how many it has, all of them zeros at first.
        page_bytes: length of each.

    >>> import entrepot
    >>> with entrepot.connect().scratch("sums", 4, page_bytes="64KiB") as scratch:
    ...     with scratch.write(3) as view:
    ...         view[:5] = b"hello"
    ...     bytes(scratch.read(3)[:5])
    b'hello'
    """

    def __init__(
        self,
        store: ServiceStore,
        name: str,
        pages: SupportsIndex,
        page_bytes: SupportsIndex | str,
        open_bytes: SupportsIndex | str | None,
    ) -> None:
        self._store = store
        self.name = checked_name(name)
        self.pages = checked_layout_number("the number of pages", pages, _MAX_PAGES)
        size = parse_size(page_bytes) if isinstance(page_bytes, str) else page_bytes
        self.page_bytes = checked_layout_number("the size of a page in bytes", size, _MAX_PAGE_BYTES)
        if self.page_bytes < _MIN_PAGE_BYTES:
            raise InvalidArgument(f"a page must have at least {_MIN_PAGE_BYTES} bytes, but got {self.page_bytes}")
        if open_bytes is None:
            limit = int(store.status()["capacity_bytes"]) // _OPEN_SHARE
        else:
            limit = parse_size(open_bytes) if isinstance(open_bytes, str) else checked_integer("open_bytes", open_bytes)
        self._max_open = max(1, limit // self.page_bytes)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._open: OrderedDict[int, BlobWriter] = OrderedDict()  # guarded by _lock; least recently used first
        self._in_use: dict[int, int] = {}  # guarded by _lock; of open pages: how many blocks use them
        self._sealed: set[int] = set()  # guarded by _lock
        self._closed = False  # guarded by _lock
        self._prefix = os.urandom(PREFIX_BYTES)
        self._locality_set = store.locality_set(_SET, reading="random", writing="random")
        self._stream = self._become_writer()

    def _become_writer(self) -> Stream:
        stream_name, marker = f"{_SET}:{self.name}", self._store.derive(f"{_SET}:{self.name}")
        stream = Stream(self._store, stream_name, StreamArguments(writers=1))
        try:
            self._writer = stream.writer()
        except InvalidArgument:
            raise ObjectExists(
                f"scratch set {self.name!r} has its one writer already: choose another name, or close it there"
            ) from None
        except StreamFailed:  # its writer died
            stream = Stream(self._store, stream_name, StreamArguments(writers=1, replace=True))
            self._writer = stream.writer()
        self._marker = marker
        with suppress(ObjectNotFound, ObjectLost):
            former = self._store.get(marker)
            _delete_pages(self._store, former["prefix"], former["pages"])
            self._store.delete(marker)
        self._store.put({"prefix": self._prefix, "pages": self.pages}, id=marker)
        return stream

    @contextmanager
    def write(self, page: SupportsIndex) -> Iterator[memoryview]:
        """Within the block, the page's bytes can be read and changed, as a ``memoryview``, or an array over it.

        The view must not be used after the block: other pages may then have its memory.

        Args:
            page: its number.

        Raises:
            InvalidArgument: there is no such page; the set is closed; or it belongs to the parent of a fork.
            StoreFull: there is no memory, and nothing that could be moved to disk. The page is as it was.
            ObjectLost: its bytes are gone.
        """
        number = self._checked(page)
        with self._lock:
            self._check_open()
            blob = self._opened(number)
            self._in_use[number] = self._in_use.get(number, 0) + 1
        try:
            yield blob.view
        finally:
            with self._lock:
                self._in_use[number] -= 1
                if not self._in_use[number]:
                    del self._in_use[number]
                if not self._closed:
                    self._seal_surplus()

    def read(self, page: SupportsIndex) -> bytes:
        """Return a copy of a page's bytes, without opening it for writing.

        Args and Raises:
            As :meth:`write`.
        """
        number = self._checked(page)
        with self._lock:
            self._check_open()
            if number in self._open:
                return bytes(self._open[number].view)
            if number not in self._sealed:
                return bytes(self.page_bytes)
            return bytes(self._store.get(self._id(number)).view)

    @property
    def open_pages(self) -> int:
        """How many pages are open, so that they cannot be moved to disk."""
        return len(self._open)

    def close(self) -> None:
        """Delete all pages. No block may be using one. Closing twice is harmless.

        Raises:
            InvalidArgument: a page is in use.
        """
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            if self._in_use:
                raise InvalidArgument(f"page {min(self._in_use)} of scratch set {self.name!r} is being written")
            self._closed = True
            for blob in self._open.values():
                blob.drop()
            self._open.clear()
            _delete_pages(self._store, self._prefix, self.pages)
            self._store.delete(self._marker)
            with suppress(ObjectNotFound, StreamFailed):  # a restart of the daemon has ended it
                self._writer.close()
                self._stream.remove()

    # --- internal

    def _id(self, number: int) -> ObjectID:
        return ObjectID(_core.page_id(self._prefix, number))

    def _opened(self, number: int) -> BlobWriter:
        """Requires _lock."""
        blob = self._open.get(number)
        if blob is not None:
            self._open.move_to_end(number)
            return blob
        oid = self._id(number)
        before = self._store.get(oid).view if number in self._sealed else None
        blob = self._store.create(self.page_bytes, id=oid)
        _core.copy_bytes(blob.view, bytes(self.page_bytes) if before is None else before)
        self._open[number] = blob
        if before is not None:
            del before
            self._sealed.discard(number)
            self._store.delete(oid)
        return blob

    def _seal_surplus(self) -> None:
        """Requires _lock."""
        for number in [number for number in self._open if number not in self._in_use]:
            if len(self._open) <= self._max_open:
                return
            self._open[number].seal()
            del self._open[number]
            self._sealed.add(number)
            self._store.hint(self._id(number), locality_set=self._locality_set)

    def _checked(self, page: SupportsIndex) -> int:
        return checked_integer(f"a page of scratch set {self.name!r}", page, self.pages - 1)

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise InvalidArgument(f"scratch set {self.name!r} was opened before a fork: only the parent may change it")
        if self._closed:
            raise InvalidArgument(f"scratch set {self.name!r} is closed, and its pages are gone")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_stream") and not self._closed and not self._in_use:
            with suppress(StoreUnavailable, StreamFailed):
                self.close()

    def __repr__(self) -> str:
        return f"<entrepot.ScratchSet {self.name!r} of {self.pages} pages{' (closed)' if self._closed else ''}>"


def _delete_pages(store: ServiceStore, prefix: bytes, pages: int) -> None:
    batch = 1024
    for first in range(0, pages, batch):
        ids = [_core.page_id(prefix, number) for number in range(first, min(first + batch, pages))]
        store._raw().delete(ids)
