"""Raw objects: a packed tree and buffers, without decoding.

For code that moves objects without interpreting them, such as checkpoints and transfers. Writing what was read here
reproduces the object exactly: type, ID and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot._client.arguments import checked_text
from entrepot._client.info import PutResult
from entrepot._client.queries import iter_objects
from entrepot._codecs.inline_bytes import CODEC as BYTES_CODEC
from entrepot.codec import inlined_bytes, unpack_tree
from entrepot.errors import CorruptData, InvalidArgument, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._store.store import Store

SMALL_BYTES = 16 << 10  # up to this size, a payload travels in the message that seals it
PUT_WAIT_SECONDS = 30.0
SHARED_FROM_BYTES = 64 << 10  # from this size on, a buffer has pages of its own, and several objects may refer to it
_ALIGN = 64
_PORTION_BYTES = 256 << 10  # of small objects in one request: whoever puts many copies waits for the daemon less often


class RawObject:
    """A sealed object, pinned as long as this instance or one of its buffers lives.

    Attributes:
        id: its ID.
        generation: which version of that ID.
        tree: its packed tree.
        pinned: the object, as the extension passes it on.
    """

    __slots__ = ("_buffers", "generation", "id", "pinned", "tree")

    def __init__(self, oid: ObjectID, raw: _core.Object) -> None:
        self.id = oid
        self.generation = raw.generation
        self.tree = raw.tree
        self.pinned = raw
        self._buffers: list[memoryview] | None = None

    @property
    def buffers(self) -> list[memoryview]:
        """Its buffers, read-only, in shared memory; made when they are first asked for."""
        if self._buffers is None:
            self._buffers = [memoryview(self.pinned.buffer(index, 0)) for index in range(self.pinned.buffer_count)]
        return self._buffers

    @property
    def type(self) -> str:
        """Name of the codec that wrote it."""
        return unpack_tree(self.tree).codec

    @property
    def nbytes(self) -> int:
        """Size in bytes of all buffers, and of the values stored inline in its tree."""
        return sum(buffer.nbytes for buffer in self.buffers) + inlined_bytes(self.tree)


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """Entry in the list of a session's objects.

    Attributes:
        id, generation: identify the object.
        nbytes: size of its buffers, without values stored inline in its tree.
        names: names bound to it in its session.
    """

    id: ObjectID
    generation: int
    nbytes: int
    names: tuple[str, ...]


class SmallObject(NamedTuple):
    """An object of at most ``SMALL_BYTES``, to be put.

    Attributes:
        id, tree: as they were read.
        buffers: its bytes.
        name: bound atomically with the put; empty: none.
        replace: whether existing content of this one may be replaced.
    """

    id: ObjectID
    tree: bytes
    buffers: Sequence[bytes | memoryview]
    name: str = ""
    replace: bool = False


def read(store: Store, oid: ObjectID, timeout: float = 0) -> RawObject:
    """Read an object without decoding it.

    Raises:
        ObjectNotFound: it is not sealed here.
        ObjectLost: its bytes are gone.
    """
    return RawObject(oid, store._raw().get(oid.binary, timeout))  # pyright: ignore[reportPrivateUsage]


def iter_entries(store: Store, pattern: str = "*") -> Iterator[ObjectEntry]:
    """Yield the objects of a store's session, as the daemon lists them; no object is read or pinned.

    Args:
        store: the session.
        pattern: a glob, as for ``Store.list``, that their name or ID matches.

    Raises:
        InvalidArgument: the pattern is not valid text.
    """
    raw, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
    for record in iter_objects(raw, session, checked_text("the pattern of a list", pattern)):
        yield _to_entry(record)


def entry_of(store: Store, oid: ObjectID) -> ObjectEntry:
    """Return the daemon's list entry for one object.

    Raises:
        ObjectNotFound: it is not sealed here.
    """
    return _to_entry(json.loads(store._raw().info(oid.binary)))  # pyright: ignore[reportPrivateUsage]


def size_of(store: Store, oid: ObjectID) -> int:
    """Return the size of one object in bytes, including values stored inline in its tree.

    Raises:
        ObjectNotFound: it is not sealed here.
    """
    tree, nbytes, _ = store._raw().tree(oid.binary)  # pyright: ignore[reportPrivateUsage]
    return nbytes + inlined_bytes(tree)


def ensure_connected(store: Store) -> None:
    """Check that the connection is alive; if not, connect to the store that is now at the address.

    Until then, objects in the memory of a dead store remain readable, although another process may have written another
    value under the same key to the new store.

    Raises:
        StoreUnavailable: nothing answers at the address any more.
    """
    store._raw().ensure_connected()  # pyright: ignore[reportPrivateUsage]


def is_connected(store: Store) -> bool:
    """Whether the connection is alive, as far as this process knows: nobody is asked, and nothing is reconnected."""
    return store._raw().is_connected  # pyright: ignore[reportPrivateUsage]


def generation_of(store: Store, oid: ObjectID) -> int | None:
    """Return the generation of an object sealed in the store itself; None: it is not."""
    return store._raw().generation_of(oid.binary)  # pyright: ignore[reportPrivateUsage]


def generations_of(store: Store, oids: Sequence[ObjectID]) -> list[int | None]:
    """Return :func:`generation_of` of several objects, in one request for those that are not in memory."""
    return store._raw().generations_of([oid.binary for oid in oids])  # pyright: ignore[reportPrivateUsage]


def read_present(store: Store, oids: Sequence[ObjectID]) -> list[RawObject | None]:
    """Read those of several objects that are in memory, without waiting; None: :func:`read` says what it is."""
    pinned = store._raw().pin_present([oid.binary for oid in oids])  # pyright: ignore[reportPrivateUsage]
    return [None if raw is None else RawObject(oid, raw) for oid, raw in zip(oids, pinned, strict=True)]


def discard(store: Store, oid: ObjectID) -> None:
    """Delete an object from the store only, not from its durable tier."""
    store._raw().delete([oid.binary])  # pyright: ignore[reportPrivateUsage]


def check_generation_deletes(store: Store) -> None:
    """Check that :func:`discard_generation` is possible, before something that needs it begins.

    Raises:
        VersionMismatch: the store's daemon is older than protocol 1.8.
        StoreUnavailable: the daemon cannot be reached.
    """
    store._raw().delete_generations([])  # pyright: ignore[reportPrivateUsage]


def discard_generation(store: Store, oid: ObjectID, generation: int) -> bool:
    """Delete an object from the store only, and only if it still has this generation.

    Returns:
        whether it was there. After a reconnect during the call it may be False for what this call has deleted.

    Raises:
        VersionMismatch: the store's daemon is older than protocol 1.8; nothing was deleted.
    """
    return store._raw().delete_generations([(oid.binary, generation)])[0]  # pyright: ignore[reportPrivateUsage]


def put_small(
    store: Store,
    objects: Sequence[SmallObject],
    *,
    replace: bool = False,
    wait_seconds: float = PUT_WAIT_SECONDS,
) -> list[PutResult]:
    """Copy objects into the store and seal them; small ones in one round trip for each 256 KiB.

    Args:
        store: the session that they belong to.
        objects: any number. Larger ones than ``SMALL_BYTES`` are allowed; :class:`RawObjectWriter` saves their copy.
        replace: whether existing content, and bindings of the names, may be replaced.
        wait_seconds: how long to wait for memory, for all of them together. Default: 30 seconds.

    Raises:
        ObjectExists: an ID holds other content, or a name is taken, and ``replace`` is False.
        StoreFull: they do not fit.
    """
    session = store._session_number  # pyright: ignore[reportPrivateUsage]
    items: list[Any] = [
        (
            small_object.id.binary,
            session,
            replace or small_object.replace,
            False,
            small_object.name,
            small_object.tree,
            tuple(small_object.buffers),
        )
        for small_object in objects
    ]
    sealed = store._raw().put(items, wait_seconds, _PORTION_BYTES)  # pyright: ignore[reportPrivateUsage]
    return [
        PutResult(small_object.id, generation, nbytes + inlined_bytes(small_object.tree), existed)
        for small_object, (_, generation, existed, nbytes) in zip(objects, sealed, strict=True)
    ]


def put_record(store: Store, oid: ObjectID, data: bytes, *, name: str = "", replace: bool = True) -> PutResult:
    """Seal a few bytes in the store only, bypassing any durable tier; for records that plugins keep beside values.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        data: at most ``SMALL_BYTES``, less a little that the record itself takes.
        name: bound atomically with the put; empty: none.
        replace: whether existing content may be replaced.

    Raises:
        ObjectExists: the ID holds other content, and ``replace`` is False.
        StoreFull: not enough memory.
        StoreUnavailable: the daemon cannot be reached.
    """
    item = store._item(data, oid, False, name, replace)  # pyright: ignore[reportPrivateUsage]
    ((_, generation, existed, nbytes),) = store._raw().put(  # pyright: ignore[reportPrivateUsage]
        [item], PUT_WAIT_SECONDS
    )
    return PutResult(oid, generation, nbytes + inlined_bytes(item[5]), existed)


def get_record(store: Store, oid: ObjectID) -> bytes | None:
    """Return what :func:`put_record` sealed; None: it is not in the store. No durable tier is consulted.

    Raises:
        ObjectLost: its bytes are gone.
        CorruptData: the ID holds something else.
        StoreUnavailable: the daemon cannot be reached.
    """
    small = store._raw().get_small(oid.binary)  # pyright: ignore[reportPrivateUsage]
    if small is not None:
        return small
    try:
        raw_object = read(store, oid)
    except ObjectNotFound:
        return None
    node = unpack_tree(raw_object.tree)
    if isinstance(node.params, bytes):
        return node.params
    if node.codec != BYTES_CODEC or len(raw_object.buffers) != 1:
        raise CorruptData(f"object {oid} has codec {node.codec}, but the bytes recorded by an adapter were expected")
    return bytes(raw_object.buffers[0])


class RawObjectWriter:
    """Writes an object's buffers in place, in shared memory, and seals it. A context manager.

        with RawObjectWriter(store, [len(first), len(second)]) as writer:
            writer.buffers[0][:] = first
            writer.buffers[1][:] = second
            writer.seal(oid, tree)

    Whatever is not sealed at the end of the block is discarded.

    Args:
        store: the store to write to.
        lengths: lengths of the buffers in bytes.
        shared: buffers, by index, that already lie in sealed objects and are only referenced: views of
            a :class:`RawObject` with the same lengths. They must not be written.
        wait_seconds: how long to wait for memory, per buffer; default: 30 seconds.

    Raises:
        StoreFull: not enough memory.
        InvalidArgument: the whole object is small (use :func:`put_small`), or a shared buffer has another length.

    Attributes:
        buffers: writable views (for shared buffers, the views given), which are released at the end.
    """

    def __init__(
        self,
        store: Store,
        lengths: Sequence[int],
        shared: Mapping[int, memoryview] | None = None,
        *,
        wait_seconds: float | None = None,
    ) -> None:
        self._store = store
        self._wait_seconds = PUT_WAIT_SECONDS if wait_seconds is None else wait_seconds
        self._blobs: list[_core.WritableBlob] = []
        self._views: list[memoryview] = []
        self.buffers: list[memoryview] = []
        shared = shared or {}
        if sum(lengths) <= SMALL_BYTES:
            raise InvalidArgument(f"an object of {sum(lengths)} bytes is too small: use put_small")
        packed = [0 if i in shared or n >= SHARED_FROM_BYTES else _aligned(n) for i, n in enumerate(lengths)]
        try:
            pack = self._create(max(sum(packed), SMALL_BYTES + 1)) if any(packed) else memoryview(b"")
            offset = 0
            for index, length in enumerate(lengths):
                if index in shared:
                    if shared[index].nbytes != length:
                        raise InvalidArgument(f"shared buffer {index} has {shared[index].nbytes} bytes, not {length}")
                    self.buffers.append(shared[index])
                elif length >= SHARED_FROM_BYTES:
                    self.buffers.append(self._create(length)[:])
                else:
                    self.buffers.append(pack[offset : offset + length])
                    offset += packed[index]
        except BaseException:
            self.drop()
            raise

    def _create(self, nbytes: int) -> memoryview:
        raw = self._store._raw()  # pyright: ignore[reportPrivateUsage]
        blob = raw.create(nbytes, self._wait_seconds)
        self._blobs.append(blob)
        self._views.append(memoryview(blob))
        return self._views[-1]

    def seal(
        self, oid: ObjectID, tree: bytes, *, name: str = "", replace: bool = False, consumers: int = 0
    ) -> PutResult:
        """Seal the object: make it immutable and visible. Views of ``buffers`` must not be written after this.

        Args:
            oid, tree: of the object.
            name: bound atomically; empty: none.
            replace: whether existing content, and a binding of the name, may be replaced.
            consumers: as for ``Store.put``; 0: not counted.

        Raises:
            ObjectExists: the ID holds other content, or the name is taken, and ``replace`` is False.
        """
        store = self._store
        session = store._session_number  # pyright: ignore[reportPrivateUsage]
        item = (oid.binary, session, replace, False, name, tree, tuple(self.buffers), 0, consumers)
        sealed = store._raw().seal_parts(self._blobs, item)  # pyright: ignore[reportPrivateUsage]
        self._release()
        return PutResult(oid, sealed[1], sealed[3] + inlined_bytes(tree), sealed[2])

    def drop(self) -> None:
        """Return unsealed memory. Idempotent."""
        self._release()
        for blob in self._blobs:
            blob.drop()

    def _release(self) -> None:
        for view in (*self.buffers, *self._views):
            with suppress(BufferError):  # still referenced by someone else
                if not view.readonly:
                    view.release()
        self.buffers, self._views = [], []

    def __enter__(self) -> RawObjectWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


def _aligned(nbytes: int) -> int:
    return (nbytes + _ALIGN - 1) // _ALIGN * _ALIGN


def _to_entry(raw: dict[str, Any]) -> ObjectEntry:
    return ObjectEntry(ObjectID(raw["id"]), raw["generation"], raw["nbytes"], tuple(raw["names"]))
