"""Chunks between stores: where they are received, and how they are appended to a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot._collections.metadata import member_node, parse_member_meta
from entrepot.codec import inlined_bytes, pack_tree, unpack_tree
from entrepot.errors import EntrepotError, ObjectExists
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.transport.endpoints import ObjectHeader, Reception
from entrepot_cluster.transport.store_endpoints import WAIT_SECONDS, LeasedReception

if TYPE_CHECKING:
    from entrepot import Store

UNKNOWN = bytes(20)  # an ID
FOREVER = float("inf")
MEMORY_SECONDS = 30.0

Places = Callable[[bytes], Iterator[tuple[ObjectID, bytes]]]
"""For the packed tree of a chunk: IDs to try one after the other, with the tree that it gets there."""


class ChunkSink:
    """Receives one chunk into a store, under an ID of that store; see
    :class:`~entrepot_cluster.transport.endpoints.ObjectSink`.

    Args:
        store: the session that it will belong to.
        places: under which IDs.

    Attributes:
        target: the ID that it has here; None: it is not here.
    """

    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places
        self.target: ObjectID | None = None  # set once, by the thread that received it

    def put(self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]) -> list[bool | EntrepotError]:
        """Seal a small chunk."""
        return [self._put(header, buffers) for header, buffers in objects]

    def _put(self, header: ObjectHeader, buffers: Sequence[memoryview]) -> bool | EntrepotError:
        def seal(target: ObjectID, tree: bytes) -> None:
            small = raw_objects.SmallObject(target, tree, buffers)
            raw_objects.put_small(self._store, [small], wait_seconds=WAIT_SECONDS)

        return self._sealed(header, seal) or False

    def allocate(self, header: ObjectHeader) -> LeasedReception:
        """Provide memory for a large chunk."""
        writer = raw_objects.RawObjectWriter(self._store, header.lengths, wait_seconds=WAIT_SECONDS)
        return LeasedReception(header, writer)

    def commit(self, reception: Reception) -> EntrepotError | None:
        """Seal a large chunk."""
        assert isinstance(reception, LeasedReception)
        error = self._sealed(reception.header, reception.writer.seal)
        if error is not None:
            reception.drop()
        return error

    def _sealed(self, header: ObjectHeader, seal: Callable[[ObjectID, bytes], object]) -> EntrepotError | None:
        error: EntrepotError = ObjectExists("no ID is free for a chunk")
        try:
            for target, tree in self._places(Envelope.unpack(header.tree).tree):
                try:
                    seal(target, tree)
                except ObjectExists as taken:
                    error = taken
                    continue
                self.target = target
                return None
        except EntrepotError as failure:
            return failure
        return error


def at_id(oid: ObjectID) -> Places:
    """The place of a chunk that is an object of its own."""

    def places(tree: bytes) -> Iterator[tuple[ObjectID, bytes]]:
        yield oid, tree

    return places


class MemberPlaces:
    """The places of chunks that become members of a collection: its free indexes, as ``CollectionBuilder.append``.

    For one thread.

    Args:
        store: the session.
        collection: its name.
    """

    def __init__(self, store: Store, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._builder = store.collection(collection)
        self._cursor = 0  # every lower index was taken when it was tried

    def __call__(self, tree: bytes) -> Iterator[tuple[ObjectID, bytes]]:
        """See ``Places``."""
        root = unpack_tree(tree)
        meta, (value,) = parse_member_meta(root), root.children
        while True:
            index, self._cursor = self._cursor, self._cursor + 1
            oid = self._builder.member_id(index)
            if raw_objects.generation_of(self._store, oid) is None:
                member = replace(meta, collection=self._collection, index=index)
                yield oid, pack_tree(member_node(member, value), inlined_bytes(tree))

    def start_again(self) -> None:
        """An index that was taken is free again."""
        self._cursor = 0


class ChunkWriter:
    """A writer of a stream of this store that appends chunks which are sealed already. For one thread.

    Args:
        store: the session.
        stream: the daemon's number of the stream.
        announces: whether the daemon deletes what was sealed as ``next_id`` and never appended if this process ends.

    Raises:
        EntrepotError: as for ``Stream.writer``.

    Attributes:
        next_id: the ID of the chunk that is appended next.
    """

    def __init__(self, store: Store, stream: int, *, announces: bool = True) -> None:
        self._store = store
        self._raw = store._raw()  # pyright: ignore[reportPrivateUsage]
        self._announces = announces
        self.next_id = ObjectID.random()
        self._number: int | None = self._raw.open_stream_writer(stream, self._announced())

    def put(self, value: Any) -> None:
        """Append a value, under an ID of its own; waits for room and memory."""
        item = self._store._item(value, ObjectID.random(), True)  # pyright: ignore[reportPrivateUsage]
        self._raw.put_chunk(self._open(), self._announced(), item, MEMORY_SECONDS, FOREVER)

    def append(self, oid: ObjectID) -> None:
        """Append a sealed object, which is deleted if that fails; waits for room."""
        self.next_id = ObjectID.random()
        self._raw.append_chunk(self._open(), oid.binary, self._announced(), FOREVER)

    def close(self) -> None:
        """Everything was written."""
        number, self._number = self._open(), None
        self._raw.close_stream_writer(number)

    def abort(self, reason: str) -> None:
        """Give up; may be called from any thread, also while another one waits for room. Idempotent."""
        number, self._number = self._number, None
        if number is not None:
            self._raw.abort_stream_writer(number, reason)

    def _announced(self) -> bytes:
        return self.next_id.binary if self._announces else UNKNOWN

    def _open(self) -> int:
        if self._number is None:
            raise EntrepotError("the writer of a stream was closed")
        return self._number
