"""Pages that long-lived workers share: each member of a collection goes to one of them, and again if that one dies.

The numbers of the members are chunks of a stream, of which each worker is a reader of one group. Whoever comes first
fills it. A marker, an object of its own, tells a run that is over from one that has not begun.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot._client.arguments import checked_name, timeout_seconds
from entrepot._services.shuffle_layout import checked_layout_number
from entrepot._streams.stream import Stream, StreamArguments
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, StreamEnded, StreamFailed, StreamLost

if TYPE_CHECKING:
    from typing_extensions import Self

    from entrepot._collections.collection import Collection
    from entrepot._services.store_access import ServiceStore
    from entrepot._streams.reader import StreamReader

_MAX_PAGES = 1 << 16  # chunks of a stream
_MAX_ITERATORS = 1 << 10
_OPEN_SECONDS = 10.0  # from the marker to the stream
_POLL_SECONDS = 0.01
_GROUP = "workers"


class PageIterator:
    """One worker's share of a collection. Created by :meth:`Store.pages`; an iterator, and a context manager.

    It has one page in hand at a time, which counts as done when the next one is asked for, or at the end of the block.
    A page that is in hand when its worker dies, or leaves the block by an exception, is given to another worker.

    Attributes:
        position: number of the latest page in the collection; None before the first.
        redelivered: whether another worker had the latest page before, and did not finish it.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> builder = store.collection("numbers")
    >>> oids = [builder.put(number, index=number) for number in range(3)]
    >>> numbers = builder.seal(3)
    >>> with store.pages("numbers", run="first")[0] as pages:
    ...     sum(pages)
    3
    """

    def __init__(self, pages: Collection, reader: StreamReader) -> None:
        self._pages = pages
        self._reader = reader
        self.position: int | None = None
        self.redelivered = False

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the next page; the one before is done.

        Args:
            timeout: seconds to wait for a page that another worker has in hand, and may leave; None: no limit.

        Raises:
            StreamEnded: all pages are done.
            Timeout: others have the last pages in hand.
            StreamFailed: who filled the list of pages has died before it was complete, or it was discarded.
            StreamLost: the daemon was restarted.
            ObjectLost: the page is gone.
        """
        position = self._reader.get(timeout=timeout)
        self.position, self.redelivered = position, self._reader.redelivered
        return self._pages[position]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self.get()
        except StreamEnded:
            raise StopIteration from None

    def close(self) -> None:
        """Stop. The page in hand is given to another worker. Closing twice is harmless."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<entrepot.PageIterator of {len(self._pages)} pages, at {self.position}>"


def open_page_iterators(
    store: ServiceStore, name: str, count: SupportsIndex, run: str, restart: bool, timeout: float | None
) -> list[PageIterator]:
    """Open iterators over a collection; see :meth:`Store.pages`."""
    iterators = checked_layout_number("the number of iterators", count, _MAX_ITERATORS)
    wait = min(timeout_seconds(timeout), _OPEN_SECONDS)
    pages = store.get_by_name(checked_name(name), timeout=timeout)
    if not hasattr(pages, "ids") or not hasattr(pages, "__getitem__"):
        raise InvalidArgument(f"{name!r} is no collection, but {type(pages).__name__}: seal a collection or a shuffle")
    if len(pages) > _MAX_PAGES:
        raise InvalidArgument(f"collection {name!r} has {len(pages)} members, but at most {_MAX_PAGES} can be shared")
    # Of this collection: another one of the same name has runs of its own.
    generation = store._raw().generation_of(store.resolve(name).binary)
    stream_name = checked_name(f"pages:{name}:{generation}:{run}")
    marker = store.derive(stream_name)
    if restart:
        with suppress(ObjectNotFound, StreamLost):
            Stream(store, stream_name, StreamArguments(create=False)).remove()
        store.delete(marker)
    stream = _filled(store, stream_name, marker, len(pages), wait)
    return [PageIterator(pages, stream.reader(_GROUP)) for _ in range(iterators)]


def _filled(store: ServiceStore, name: str, marker: Any, count: int, wait: float) -> Stream:
    try:
        store.put(os.urandom(16), id=marker)
    except ObjectExists:
        return _existing(store, name, wait)
    stream = Stream(store, name, StreamArguments(capacity=max(1, count), writers=1, replace=True))
    with stream.writer() as writer:
        for position in range(count):
            writer.put(position)
    return stream


def _existing(store: ServiceStore, name: str, wait: float) -> Stream:
    deadline = time.monotonic() + wait
    while True:
        try:
            return Stream(store, name, StreamArguments(create=False))
        except (ObjectNotFound, StreamFailed) as error:
            if time.monotonic() >= deadline or isinstance(error, StreamFailed):
                raise StreamLost(
                    "the list of pages is gone: the daemon was restarted, who made it has died, or the run was over "
                    "long ago; pass restart=True, or another run="
                ) from error
            time.sleep(_POLL_SECONDS)
