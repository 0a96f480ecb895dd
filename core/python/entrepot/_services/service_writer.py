"""One process's end of a service whose writers leave pages and a manifest: how it begins, closes and gives up.

States::

    open ──close, end of the block──▶ closed: its manifest says which pages it wrote
      └──abort, an error, an exception in the block, last reference dropped, end of the process──▶ aborted: the service
         fails for everybody
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot._client.writer_context import WriterContext
from entrepot._services.manifest import PREFIX_BYTES, PageEntry, WriterSlots, pack_manifest, parse_pages
from entrepot.errors import InvalidArgument, ObjectExists, StoreUnavailable

if TYPE_CHECKING:
    from entrepot._services.store_access import ServiceStore
    from entrepot._streams.writer import StreamWriter

WAIT_SECONDS = 30.0
"""For memory, as Store.put."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a writer has written: pages, as ``PageWriter.finish`` returns them, and what else its manifest has."""

    pages: bytes
    rows: list[int]
    schema: bytes | None


class ServiceWriter(WriterContext):
    """What the writers of all services have in common; a context manager that closes it.

    It belongs to the process that opened it: a forked child has to open its own.
    """

    def __init__(
        self, store: ServiceStore, name: str, kind: str, writers: int, slots: WriterSlots, stream: StreamWriter
    ) -> None:
        self._store = store
        self._name = name
        self._kind = kind
        self._stream = stream  # tells the daemon that this writer lives, and everybody else if it dies
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open = True  # guarded by _lock
        self._closing = False  # guarded by _lock; whether it may have a manifest
        self._pages: list[PageEntry] = []  # guarded by _lock; those that are sealed, once all are
        self._prefix = os.urandom(PREFIX_BYTES)
        if slots.take(self._prefix) is None:
            self._open = False
            stream.abort("another writer found no place")
            raise ObjectExists(
                f"{kind} {name!r} had all its {writers} writers before: discard() it, or choose another name"
            )
        self._manifest_id = slots.manifest_id(self._prefix)

    def _finish(self) -> Finished:
        """Seal everything. Called with _lock."""
        raise NotImplementedError

    def _abandon(self) -> None:
        """Drop everything that is not in a manifest. Called with _lock."""
        raise NotImplementedError

    def close(self) -> None:
        """Seal what this writer has written. When all writers have closed, the result can be read.

        No thread may be appending. Closing twice is harmless.

        Raises:
            StreamFailed: another writer died or gave up, so there will be no result.
            StoreFull, StoreUnavailable: as ``append``.
        """
        with self._lock:
            if not self._open:
                return
            self._check_process()
            self._closing = True
            try:
                done = self._finish()
                self._pages = parse_pages(done.pages)
                self._store.put(pack_manifest(done.pages, done.rows, done.schema), id=self._manifest_id)
                self._open = False
                self._stream.close()
            except BaseException as error:
                self._give_up(f"{type(error).__name__}: {error}")
                raise

    def abort(self, reason: str = "it was aborted") -> None:
        """Give up: what was written is deleted, and everybody fails with this reason. Harmless once it is closed."""
        with self._lock:
            self._give_up(reason)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has failed."""
        return not self._open

    # --- internal

    def _give_up(self, reason: str) -> None:
        """Requires _lock."""
        self._open = False
        if self._pid == os.getpid():
            self._stream.abort(reason)
            self._abandon()
            if self._closing:
                with suppress(StoreUnavailable):
                    self._store.delete(self._manifest_id)
                    self._store._raw().delete([page.id for page in self._pages])

    def _failing(self, call: Any, *arguments: Any) -> None:
        """Call; if that fails halfway, so does the writer."""
        try:
            call(*arguments)
        except InvalidArgument:
            raise  # checked beforehand
        except BaseException as error:
            self.abort(f"{type(error).__name__}: {error}")
            raise

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Hold _lock of a writer that is open.

        Raises:
            InvalidArgument: it is closed, or opened before a fork.
        """
        self._check_process()
        with self._lock:
            if not self._open:
                raise InvalidArgument(
                    f"this writer of {self._kind} {self._name!r} is closed: nothing can be appended to it"
                )
            yield

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise InvalidArgument(
                f"this writer of {self._kind} {self._name!r} was opened before a fork: open another one"
            )

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._give_up("it was dropped without close()")

    def __repr__(self) -> str:
        return f"<entrepot.{type(self).__name__} of {self._name!r}{'' if self._open else ' (closed)'}>"
