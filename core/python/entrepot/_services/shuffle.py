"""Shuffles: records that several processes divide between partitions, each of which is read as a whole.

States::

    written ──all writers have closed, and somebody asks for its pages──▶ sealed ──discard──▶ (gone)
      └──a writer died or gave up──▶ failed ──discard, or the end of the session──▶ (gone)

A stream without chunks tells who writes: the daemon sees it if a writer dies. What each writer has written is in a
manifest that it puts when it closes. With all of them, any process makes the collection of the pages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot._client.arguments import checked_name, timeout_seconds
from entrepot._collections.members import put_contents
from entrepot._collections.metadata import VALUE, Contents, ValueTraits, collection_key, pack_index
from entrepot._daemon.units import parse_size
from entrepot._services.manifest import Manifest, WriterSlots, parse_manifest
from entrepot._services.page import ALIGNED, COMPACT, FIXED, Page
from entrepot._services.shuffle_layout import SHUFFLE, ShuffleLayout, checked_layout_number
from entrepot._services.shuffle_writer import ShuffleWriter
from entrepot._streams.stream import Stream, StreamArguments
from entrepot.errors import (
    InvalidArgument,
    ObjectExists,
    ObjectNotFound,
    StreamEnded,
    StreamFailed,
    StreamLost,
    Timeout,
)
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from entrepot._collections.collection import Collection
    from entrepot._services.store_access import ServiceStore
    from entrepot._streams.writer import StreamWriter

_MAX_PARTITIONS = 1 << 16
_DEFAULT_PARTITIONS = 32  # of an aggregation
_MAX_WRITERS = 1 << 12
_MIN_PAGE_BYTES, _MAX_PAGE_BYTES = 64 << 10, 1 << 30
_DEFAULT_PAGE_BYTES = 4 << 20
_OPEN_SHARE = 8  # the pages that writers fill at the same time take at most this part of the store, if they can
_MAX_RECORD_BYTES = (1 << 32) - 1
_SEAL_SLICE_SECONDS = 1.0


class Shuffle:
    """A shuffle of one session, as this process has it open. Created by :meth:`Store.shuffle`. Thread-safe.

    Attributes:
        name: its name within the session; once it is sealed, that of the collection of its pages.
        partitions: how many partitions it has.
        writers: how many writers it expects in total.
        layout, slots: what services that are made of it need.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> shuffle = entrepot.connect().shuffle("by-customer", 4, writers=1)
    >>> with shuffle.writer() as writer:
    ...     writer.append(pa.table({"customer": [1, 2, 1, 3]}), by="customer")
    >>> sum(batch.num_rows for partition in range(4) for batch in shuffle.read(partition, timeout=60))
    4
    >>> shuffle.discard()
    """

    def __init__(
        self,
        store: ServiceStore,
        name: str,
        partitions: SupportsIndex | None,
        writers: SupportsIndex | None,
        record_bytes: SupportsIndex | None,
        records: bool,
        page_bytes: SupportsIndex | str | None,
        kind: str = SHUFFLE,
        plan: dict[str, Any] | None = None,
    ) -> None:
        self._store = store
        self._kind = kind
        self.name = checked_name(name)
        self.id = store.derive(collection_key(name))
        self.layout = self._agree(partitions, writers, record_bytes, records, page_bytes, plan)
        self.partitions = self.layout.partitions
        self.writers = self.layout.writers
        self.slots = WriterSlots(store, name, self.writers)

    def writer(self) -> ShuffleWriter:
        """Open one of the shuffle's writers, for this process; a context manager that closes it.

        Raises:
            ObjectExists: the shuffle is sealed, or another one of this name has had all its writers.
            InvalidArgument: all writers that the shuffle expects are open already.
            StreamFailed: the shuffle has failed: a writer died or gave up.
        """
        return ShuffleWriter(self._store, self.name, self.layout, self.slots, self.open_stream())

    def open_stream(self) -> StreamWriter:
        """Open a writer of the stream that tells who writes; for the writers of this module."""
        if self.sealed:
            raise ObjectExists(
                f"{self._kind} {self.name!r} is sealed, so nothing can be written to it: discard() it, or choose "
                "another name"
            )
        return self._stream(create=True).writer()

    @property
    def sealed(self) -> bool:
        """Whether its pages have become a collection."""
        return self._store.exists(self.id)

    def seal(self, *, timeout: float | None = None) -> Collection:
        """Wait until all writers have closed, and make the collection of the pages, which has the shuffle's name.

        Any process may do this, and the methods that read do it on their own. A second seal has no effect.

        Args:
            timeout: seconds to wait; None: no limit.

        Raises:
            Timeout: writers were still open, or had not come.
            StreamFailed: a writer died or gave up, so there are no pages to be read.
            InvalidArgument: writers wrote tables of different columns.
            ObjectExists: the name belongs to another object.
        """
        if not self.sealed:
            self._wait(timeout)
            if not self.sealed:
                self._seal()
        collection: Collection = self._store.get(self.id)
        return collection

    def pages(self, partition: int, *, timeout: float | None = None) -> Iterator[Page]:
        """Return the pages of a partition, one after the other: each is in memory while it is in use.

        Args:
            partition: its number.
            timeout: as for :meth:`seal`.

        Raises:
            InvalidArgument: there is no such partition.
            Timeout, StreamFailed: as :meth:`seal`.
            ObjectLost: a page is gone.
        """
        self._check_partition(partition)
        collection = self.seal(timeout=timeout)
        starts = self._index()[0]
        for blob in collection[starts[partition] : starts[partition + 1]]:
            yield Page(blob.view)
            del blob  # so that the page is released with what was read from it

    def read(self, partition: int, *, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition of tables, as record batches whose columns are views of the pages.

        Args and Raises:
            As :meth:`pages`; InvalidArgument also for a shuffle of records.
        """
        for page in self.pages(partition, timeout=timeout):
            yield from page.batches()

    def to_arrow(self, partition: int, *, timeout: float | None = None) -> pa.Table:
        """Return a partition of tables as one ``pyarrow.Table``, whose chunks are views of the pages.

        Args and Raises:
            As :meth:`pages`; InvalidArgument also for a shuffle of records, or one that nothing was written to.
        """
        import pyarrow as pa

        batches = list(self.read(partition, timeout=timeout))
        raw = self._index()[2]
        if raw is None:
            raise InvalidArgument(f"no rows were written to {self._kind} {self.name!r}, so their columns are not known")
        return pa.Table.from_batches(batches, pa.ipc.read_schema(pa.py_buffer(raw)))

    def records(self, partition: int, *, timeout: float | None = None) -> Iterator[pa.Array]:
        """Return the records of a partition as Arrow arrays, one for each page; see :meth:`Page.to_arrow`.

        Args and Raises:
            As :meth:`pages`.
        """
        for page in self.pages(partition, timeout=timeout):
            yield page.to_arrow()

    def arrays(self, partition: int, dtype: Any, *, timeout: float | None = None) -> Iterator[np.ndarray[Any, Any]]:
        """Return the records of a partition of a shuffle with ``record_bytes``, as arrays that are views of the pages.

        Args and Raises:
            As :meth:`pages`; InvalidArgument also if the element type has another size.
        """
        for page in self.pages(partition, timeout=timeout):
            yield from page.to_numpy(dtype)

    def counts(self, *, timeout: float | None = None) -> list[int]:
        """Return how many records or rows each partition has.

        Args and Raises:
            As :meth:`seal`.
        """
        self.seal(timeout=timeout)
        return list(self._index()[1])

    def schema_bytes(self) -> bytes | None:
        """Return the schema that its writers gave, once it is sealed; None: they wrote nothing."""
        return self._index()[2]

    def discard(self) -> None:
        """Delete the shuffle with all its pages, sealed or not, also those of writers that died.

        Writers that are open get ``StreamFailed`` when they close. A shuffle of the same name can then be started.
        """
        with suppress(ObjectNotFound, StreamLost):
            self._stream(create=False).remove()
        self._store.delete(self.id, members=True)
        self.slots.discard()
        self._store.delete(self._index_id)
        self._store.delete(self._layout_id)

    def __repr__(self) -> str:
        return f"<entrepot.Shuffle {self.name!r} partitions={self.partitions} writers={self.writers}>"

    # --- internal

    @property
    def _layout_id(self) -> ObjectID:
        return self._store.derive(f"shuffle-layout:{self.name}")

    @property
    def _index_id(self) -> ObjectID:
        return self._store.derive(f"shuffle-index:{self.name}")

    def _stream(self, *, create: bool) -> Stream:
        return Stream(self._store, f"shuffle:{self.name}", StreamArguments(writers=self.writers, create=create))

    def _agree(
        self,
        partitions: SupportsIndex | None,
        writers: SupportsIndex | None,
        record_bytes: SupportsIndex | None,
        records: bool,
        page_bytes: SupportsIndex | str | None,
        plan: dict[str, Any] | None,
    ) -> ShuffleLayout:
        """Return the layout, which is that of whoever came first."""
        existing = self._existing_layout()
        if existing is None:
            if (partitions if self._kind == SHUFFLE else plan) is None:
                needed = "the number of partitions" if self._kind == SHUFFLE else "keys and aggregates"
                raise ObjectNotFound(
                    f"there is no {self._kind} {self.name!r} in session {self._store.session_name!r}: its first user "
                    f"passes {needed}"
                )
            given = _DEFAULT_PARTITIONS if partitions is None else partitions
            count = checked_layout_number("the number of partitions", given, _MAX_PARTITIONS)
            of_all = 1 if writers is None else checked_layout_number("the number of writers", writers, _MAX_WRITERS)
            length = 0 if record_bytes is None else _record_length(record_bytes)
            framing = FIXED if length else COMPACT if records else ALIGNED
            size = self._page_bytes(page_bytes, count * of_all)
            layout = ShuffleLayout(count, of_all, framing, length, size, self._kind, plan)
            try:
                self._store.put(asdict(layout), id=self._layout_id)
            except ObjectExists:
                existing = self._existing_layout()
            if existing is None:
                return layout
        if existing.kind != self._kind:
            raise ObjectExists(
                f"the name {self.name!r} is taken by another service (kind: {existing.kind}): choose another one"
            )
        asked = {
            "partitions": partitions,
            "writers": writers,
            "record_bytes": record_bytes,
            "framing": COMPACT if records and record_bytes is None else None,
            "plan": plan,
            "page_bytes": None if page_bytes is None else self._page_bytes(page_bytes, 1),
        }
        for key, value in asked.items():
            if value is not None and value != getattr(existing, key):
                raise InvalidArgument(
                    f"{self._kind} {self.name!r} exists with {key}={getattr(existing, key)}, not {value}: pass the "
                    "same everywhere, or discard() it first"
                )
        return existing

    def _existing_layout(self) -> ShuffleLayout | None:
        try:
            return ShuffleLayout(**self._store.get(self._layout_id))
        except ObjectNotFound:
            return None

    def _page_bytes(self, given: SupportsIndex | str | None, open_pages: int) -> int:
        if given is None:
            share = int(self._store.status()["capacity_bytes"]) // _OPEN_SHARE // open_pages
            return max(_MIN_PAGE_BYTES, min(_DEFAULT_PAGE_BYTES, share & ~0xFFFF))
        nbytes = parse_size(given) if isinstance(given, str) else given
        number = checked_layout_number("the size of a page in bytes", nbytes, _MAX_PAGE_BYTES)
        if number < _MIN_PAGE_BYTES:
            raise InvalidArgument(f"a page must have at least {_MIN_PAGE_BYTES} bytes, but got {number}")
        return number

    def _check_partition(self, partition: int) -> None:
        if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < self.partitions:
            raise InvalidArgument(
                f"partition {partition!r} does not exist: the partitions of {self._kind} {self.name!r} are 0 to "
                f"{self.partitions - 1}"
            )

    def _wait(self, timeout: float | None) -> None:
        """Wait until all writers have closed."""
        deadline = time.monotonic() + timeout_seconds(timeout)
        while self.slots.manifests() is None and not self.sealed:
            try:
                stream = self._stream(create=not self.slots.any_taken())
                with stream.reader(late=True) as reader:
                    remaining = max(0.0, deadline - time.monotonic())
                    with suppress(StreamEnded):
                        reader.get(timeout=min(remaining, _SEAL_SLICE_SECONDS))
            except Timeout:
                if time.monotonic() >= deadline:
                    missing = self.writers - self.slots.count_finished()
                    raise Timeout(
                        f"{missing} of the {self.writers} writers of {self._kind} {self.name!r} have not closed in time"
                    ) from None
            except (ObjectNotFound, StreamFailed) as error:
                # Whoever saw all writers close removes the stream.
                if not self.sealed and self.slots.manifests() is None:
                    raise self._failure(error) from error

    def _failure(self, error: ObjectNotFound | StreamFailed) -> StreamFailed:
        if isinstance(error, ObjectNotFound):
            reason = "the daemon was restarted, or the shuffle discarded, while it was being written"
            return StreamLost(f"{self._kind} {self.name!r} is lost: {reason}; discard() it, and write it again")
        return type(error)(
            f"{self._kind} {self.name!r} has failed, and has no pages: {error}; discard() it, and write it again"
        )

    def _seal(self) -> None:
        store = self._store
        ids = self.slots.manifests()
        if ids is None:
            raise self._failure(ObjectNotFound("it was discarded"))
        manifests = [parse_manifest(self.name, store.get(oid)) for oid in ids]
        schema = self._common_schema(manifests)
        pages = sorted(
            (page for manifest in manifests for page in manifest.pages),
            key=lambda page: (page.partition, page.sealed_ns, page.id),
        )
        starts = [0] * (self.partitions + 1)
        for page in pages:
            starts[page.partition + 1] += 1
        for partition in range(self.partitions):
            starts[partition + 1] += starts[partition]
        rows = [sum(counts) for counts in zip(*(manifest.rows for manifest in manifests), strict=True)]
        store.put({"starts": starts, "rows": rows, "schema": schema}, id=self._index_id)
        sizes = [page.nbytes for page in pages]
        index = pack_index([ObjectID(page.id) for page in pages], sizes, None)
        traits = ValueTraits("entrepot.Blob", VALUE)
        contents = Contents(self.name, store.scope, store.session_name, len(pages), sum(sizes), traits, index)
        put_contents(store, self.id, contents, self.name)
        with suppress(ObjectNotFound, StreamFailed):
            self._stream(create=False).remove()

    def _common_schema(self, manifests: list[Manifest]) -> bytes | None:
        schemas = [manifest.schema for manifest in manifests if manifest.schema is not None]
        if len(set(schemas)) > 1:
            import pyarrow as pa

            first, other = [pa.ipc.read_schema(pa.py_buffer(raw)) for raw in sorted(set(schemas))][:2]
            if first != other:
                raise InvalidArgument(
                    f"the writers of {self._kind} {self.name!r} wrote tables of different columns:\n{first}\nand\n"
                    f"{other}\ndiscard() it, and write it again"
                )
        return schemas[0] if schemas else None

    def _index(self) -> tuple[list[int], list[int], bytes | None]:
        index = self._store.get(self._index_id)
        return index["starts"], index["rows"], index["schema"]


def _record_length(value: Any) -> int:
    return checked_layout_number("the length of a record in bytes", value, _MAX_RECORD_BYTES)
