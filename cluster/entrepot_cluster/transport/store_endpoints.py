"""Source and sink of a transport in a store: objects are read and written there, under their IDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID

from entrepot_cluster.transport.endpoints import ObjectHeader, Reception, Wanted

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._store.store import Store

WAIT_SECONDS = 4.0  # less than half of what a peer waits for progress


class StoreSource:
    """Reads objects of a store.

    Args:
        store: a connection to it, in any session; it must outlive the source.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, oid: bytes, generation: int | None) -> PinnedObject:
        """Pin an object; see :class:`~entrepot_cluster.transport.endpoints.ObjectSource`."""
        raw_object = raw_objects.read(self._store, ObjectID(oid))
        if generation not in (None, raw_object.generation):
            raise ObjectNotFound(
                f"the store has generation {raw_object.generation} of object {oid.hex()}, not generation {generation}"
            )
        return PinnedObject(raw_object)

    def open_present(self, wanted: Sequence[Wanted]) -> list[PinnedObject | None]:
        """Pin what is in memory; see :class:`~entrepot_cluster.transport.endpoints.ObjectSource`."""
        present = raw_objects.read_present(self._store, [ObjectID(item.id) for item in wanted])
        return [
            PinnedObject(raw) if raw is not None and item.generation in (None, raw.generation) else None
            for item, raw in zip(wanted, present, strict=True)
        ]


class PinnedObject:
    """An object of a store, pinned until :meth:`close`.

    Attributes:
        generation: as stored.
        tree: what is sent as its tree; as stored, unless whoever sends it replaces it.
    """

    __slots__ = ("_raw_object", "generation", "tree")

    def __init__(self, raw_object: raw_objects.RawObject) -> None:
        self.generation = raw_object.generation
        self.tree = raw_object.tree
        self._raw_object: raw_objects.RawObject | None = raw_object  # keeps the pin

    @property
    def pinned(self) -> _core.Object:
        """The object itself."""
        assert self._raw_object is not None
        return self._raw_object.pinned

    @property
    def nbytes(self) -> int:
        """Size of its buffers in bytes."""
        return self.pinned.nbytes

    @property
    def buffers(self) -> list[memoryview]:
        """Its buffers, as stored; none once it is closed. Each keeps the pin."""
        return [] if self._raw_object is None else self._raw_object.buffers

    def close(self) -> None:
        """Unpin it. Idempotent."""
        self._raw_object = None


class StoreSink:
    """Receives objects into a store.

    Args:
        store: the session that they will belong to.
        replace: whether content of other generations under the same ID may be replaced. Default: False, which makes
            :class:`~entrepot.errors.ObjectExists` the outcome.
    """

    def __init__(self, store: Store, *, replace: bool = False) -> None:
        self._store = store
        self._replace = replace

    def put(self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]) -> list[bool | EntrepotError]:
        """Seal small objects in one round trip; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        try:
            copies = [raw_objects.SmallObject(ObjectID(header.id), header.tree, buffers) for header, buffers in objects]
            results = raw_objects.put_small(self._store, copies, replace=self._replace, wait_seconds=WAIT_SECONDS)
            return [result.existed for result in results]
        except EntrepotError as error:
            if len(objects) == 1:
                return [error]
            return [self.put([item])[0] for item in objects]  # to know which of them it was

    def allocate(self, header: ObjectHeader) -> LeasedReception:
        """Provide memory; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        writer = raw_objects.RawObjectWriter(self._store, header.lengths, wait_seconds=WAIT_SECONDS)
        return LeasedReception(header, writer)

    def commit(self, reception: Reception) -> EntrepotError | None:
        """Seal a large object; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        assert isinstance(reception, LeasedReception)
        header = reception.header
        try:
            reception.writer.seal(ObjectID(header.id), header.tree, replace=self._replace)
        except EntrepotError as error:
            reception.drop()
            return error
        return None


class LeasedReception:
    """Leased memory of the store for an object.

    Attributes:
        header: the object.
        writer: holds the memory.
    """

    __slots__ = ("header", "writer")

    def __init__(self, header: ObjectHeader, writer: raw_objects.RawObjectWriter) -> None:
        self.header = header
        self.writer = writer

    @property
    def buffers(self) -> list[memoryview]:
        """Writable views of the store's memory."""
        return self.writer.buffers

    def drop(self) -> None:
        """Give the memory back. Idempotent."""
        self.writer.drop()
