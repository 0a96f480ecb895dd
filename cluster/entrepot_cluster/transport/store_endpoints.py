"""Source and sink of a transport in a store: objects are read and written there, under their IDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID

from entrepot_cluster.transport.endpoints import ObjectHeader, Reception

if TYPE_CHECKING:
    from entrepot._store.store import Store

ALLOCATE_SECONDS = 4.0  # less than half of what a peer waits for progress


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


class PinnedObject:
    """An object of a store, pinned until :meth:`close`.

    Attributes:
        generation, tree, buffers: as stored.
    """

    __slots__ = ("buffers", "generation", "tree")

    def __init__(self, raw_object: raw_objects.RawObject) -> None:
        self.generation = raw_object.generation
        self.tree = raw_object.tree
        self.buffers: list[memoryview] = raw_object.buffers  # each keeps the pin

    def close(self) -> None:
        """Unpin it. Idempotent."""
        self.buffers = []


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

    def allocate(self, header: ObjectHeader) -> SmallReception | LeasedReception | None:
        """Provide memory; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        if header.nbytes <= raw_objects.SMALL_BYTES:
            return SmallReception(header)
        writer = raw_objects.RawObjectWriter(self._store, header.lengths, wait_seconds=ALLOCATE_SECONDS)
        return LeasedReception(header, writer)

    def commit(self, receptions: Sequence[Reception]) -> list[EntrepotError | None]:
        """Seal what has arrived: small objects in one round trip, others one by one."""
        small = [reception for reception in receptions if isinstance(reception, SmallReception)]
        outcomes = dict(zip(map(id, small), self._put(small), strict=True))
        for reception in receptions:
            if isinstance(reception, LeasedReception):
                outcomes[id(reception)] = self._seal(reception)
        return [outcomes[id(reception)] for reception in receptions]

    def _put(self, small: Sequence[SmallReception]) -> list[EntrepotError | None]:
        try:
            if small:
                objects = [reception.small_object() for reception in small]
                raw_objects.put_small(self._store, objects, replace=self._replace)
        except EntrepotError as error:
            if len(small) == 1:
                return [error]
            return [self._put([reception])[0] for reception in small]  # to know which of them it was
        return [None] * len(small)

    def _seal(self, reception: LeasedReception) -> EntrepotError | None:
        header = reception.header
        try:
            reception.writer.seal(ObjectID(header.id), header.tree, replace=self._replace)
        except EntrepotError as error:
            reception.drop()
            return error
        return None


class SmallReception:
    """Private memory of an object that is sealed by a message.

    Attributes:
        header: the object.
        buffers: writable views.
    """

    __slots__ = ("buffers", "header")

    def __init__(self, header: ObjectHeader) -> None:
        self.header = header
        self.buffers = [memoryview(bytearray(length)) for length in header.lengths]

    def small_object(self) -> raw_objects.SmallObject:
        """The object, to be put."""
        return raw_objects.SmallObject(ObjectID(self.header.id), self.header.tree, self.buffers)

    def drop(self) -> None:
        """Nothing to give back."""


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
