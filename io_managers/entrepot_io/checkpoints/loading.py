"""Loading: reads bytes from the target directly into their final place in the store, verifies them, then seals.

Objects that the store already holds with the same content are left as they are, so an interrupted load resumes where it
stopped. Nothing is sealed before its checksums were compared.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot import parts
from entrepot.errors import ObjectExists, ObjectLost, ObjectNotFound, StoreFull
from entrepot.ids import ObjectID

from entrepot_io.checkpoints.chunks import ChunkFolder, chunk_folder
from entrepot_io.checkpoints.digests import can_match, matches
from entrepot_io.checkpoints.manifest import Extent, Manifest, SavedObject
from entrepot_io.checkpoints.manifest_text import MANIFEST, from_text
from entrepot_io.checkpoints.places import Place, open_place
from entrepot_io.checkpoints.progress import Counter, ProgressCallback
from entrepot_io.checkpoints.workers import Workers, thread_count

if TYPE_CHECKING:
    from entrepot import Store

# Limit on bytes in flight: enough to keep all threads busy. Unsealed objects cannot be evicted to make space for
# others, so in a small store the limit is lower.
AHEAD_BYTES = 192 << 20
AHEAD_SHARE = 4
SMALL_BATCH = 256
PACKS_KEPT = 4


def load(
    store: Store,
    url: str,
    *,
    session: str | None = None,
    replace: bool = False,
    progress: ProgressCallback | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ObjectID | list[ObjectID]:
    """Load a checkpoint's objects; see ``Store.load``."""
    root, name = open_place(url, storage_options).split()
    manifest = read_manifest(root, name)
    with nullcontext(store) if session is None else store.session(session) as target:
        load_manifest(target, manifest, root, name, replace=replace, progress=progress)
        if (durable := target.durable) is not None:
            for one in manifest.objects:
                if durable.covers("") or any(map(durable.covers, one.names)):
                    target.make_durable(one.id)
    return manifest.roots[0] if manifest.what in ("object", "collection") else list(manifest.roots)


def read_manifest(root: Place, name: str) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        ObjectNotFound: there is no checkpoint.
        CorruptData, VersionMismatch: it cannot be read.
    """
    url = f"{root.url}/{name}"
    try:
        text = (root / name).read(MANIFEST)
    except FileNotFoundError as error:
        raise ObjectNotFound(
            f"there is no checkpoint at {url}: nothing was saved there, or the save did not come to its end; "
            f"'entrepot checkpoints list {root.url}' shows what is there"
        ) from error
    return from_text(text, f"{url}/{MANIFEST}")


def load_manifest(
    store: Store,
    manifest: Manifest,
    root: Place,
    name: str,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
) -> None:
    """Load the objects and names of a manifest into a store's session."""
    counter = Counter(progress, manifest.nbytes, len(manifest.objects))
    if manifest.format == "parquet":
        from entrepot_io.checkpoints import parquet, parquet_collections

        load = parquet_collections.load_collection if manifest.what == "collection" else parquet.load_tables
        load(store, manifest, root / name, replace, counter)
        return
    with Workers(thread_count(root.local), "entrepot-load") as workers:
        loader = _Loader(store, manifest, chunk_folder(root, name, manifest.own_chunks), workers, replace, counter)
        try:
            for one in manifest.objects:
                loader.add(one)
            loader.finish()
        finally:
            loader.drop()


def bind_names(store: Store, saved: SavedObject, names: tuple[str, ...], replace: bool) -> None:
    """Bind a checkpoint's names in the session; one bound to another object is replaced only if ``replace`` is true."""
    for name in names:
        with suppress(ObjectNotFound):
            if store.resolve(name) == saved.id:
                continue
        store.set_name(name, saved.id, replace=replace)


@dataclass(slots=True)
class _Incoming:
    """An object whose bytes are being read."""

    saved: SavedObject
    writer: parts.PartsWriter
    reads: list[Future[None]] = field(default_factory=list)


class _Loader:
    """Loads objects in order, with their bytes read ahead by threads. Used by one thread."""

    def __init__(
        self, store: Store, manifest: Manifest, folder: ChunkFolder, workers: Workers, replace: bool, counter: Counter
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._folder = folder
        self._workers = workers
        self._replace = replace
        self._counter = counter
        self._coming: deque[_Incoming] = deque()
        self._coming_bytes = 0
        self._ahead = min(AHEAD_BYTES, int(store.status()["capacity_bytes"]) // AHEAD_SHARE)
        self._small: list[tuple[SavedObject, parts.SmallObject]] = []
        self._packs: OrderedDict[int, bytes] = OrderedDict()
        # Buffers shared by several objects are stored once, as in the store they were saved from.
        self._uses = Tally(key for one in manifest.objects for key in set(one.buffers) if _can_be_shared(key))
        self._shared: dict[tuple[Extent, ...], memoryview] = {}

    def add(self, saved: SavedObject) -> None:
        """Start loading one object."""
        if self._is_there(saved):
            bind_names(self._store, saved, saved.names, self._replace)
            self._counter.add(saved.nbytes, objects=1)
            return
        if saved.nbytes <= parts.SMALL_BYTES:
            buffers = [b"".join(self._piece(extent) for extent in extents) for extents in saved.buffers]
            name = saved.names[0] if saved.names else ""
            self._small.append((saved, parts.SmallObject(saved.id, saved.tree, buffers, name)))
            if len(self._small) >= SMALL_BATCH:
                self._put_small()
            return
        repeated = [key for key in set(saved.buffers) if self._uses[key] > 1]
        if any(key not in self._shared and key in one.saved.buffers for key in repeated for one in self._coming):
            self._seal_until(0)  # a buffer that it shares is still being loaded
        while self._coming and self._coming_bytes + saved.nbytes > self._ahead:
            self._seal_first()
        self._begin(saved)

    def finish(self) -> None:
        """Seal everything in flight."""
        self._put_small()
        self._seal_until(0)

    def drop(self) -> None:
        """Discard what is not sealed, once no thread writes to it any more."""
        for one in self._coming:
            for read in one.reads:
                read.cancel()
        for one in self._coming:
            wait(one.reads)
            one.writer.drop()
        self._coming.clear()
        self._shared.clear()

    # --- existing objects

    def _is_there(self, saved: SavedObject) -> bool:
        try:
            held = parts.read(self._store, saved.id)
        except ObjectNotFound:
            return False
        except ObjectLost:
            parts.discard(self._store, saved.id)  # lost in this store: load it now
            return False
        if held.generation == saved.generation and self._store.instance_id == self._manifest.instance:
            return True
        if held.tree == saved.tree and self._same_bytes(saved, held):
            return True
        if self._replace:
            return False
        raise ObjectExists(
            f"object {saved.id} of the checkpoint is in this store already, with other content: load with "
            "replace=True, or delete it first"
        )

    def _same_bytes(self, saved: SavedObject, held: parts.ObjectParts) -> bool:
        lengths = [sum(length for _, _, length in extents) for extents in saved.buffers]
        if lengths != [buffer.nbytes for buffer in held.buffers]:
            return False
        for extents, buffer in zip(saved.buffers, held.buffers, strict=True):
            at = 0
            for extent in extents:
                index, _, length = extent
                chunk, part = self._manifest.chunks[index], buffer[at : at + length]
                at += length
                if length == chunk.nbytes and can_match(chunk.digest):
                    if not matches(part, chunk.digest):
                        return False
                elif part != self._piece(extent):
                    return False
        return True

    # --- small objects

    def _piece(self, extent: Extent) -> memoryview:
        index, offset, length = extent
        pack = self._packs.get(index)
        if pack is None:
            chunk = self._manifest.chunks[index]
            pack = self._packs[index] = self._folder.read(chunk)
            self._counter.add(0, moved=chunk.nbytes if chunk.data is None else 0)
            if len(self._packs) > PACKS_KEPT:
                self._packs.popitem(last=False)
        else:
            self._packs.move_to_end(index)
        return memoryview(pack)[offset : offset + length]

    def _put_small(self) -> None:
        if not self._small:
            return
        taken, self._small = self._small, []
        parts.put_small(self._store, [small for _, small in taken], replace=self._replace)
        for saved, _ in taken:
            bind_names(self._store, saved, saved.names[1:], self._replace)
            self._counter.add(saved.nbytes, objects=1)

    # --- large objects

    def _begin(self, saved: SavedObject) -> None:
        lengths = [sum(length for _, _, length in extents) for extents in saved.buffers]
        known = {index: self._shared[key] for index, key in enumerate(saved.buffers) if key in self._shared}
        first = {key: index for index, key in reversed(list(enumerate(saved.buffers))) if _can_be_shared(key)}
        again = {index for index, key in enumerate(saved.buffers) if first.get(key, index) != index}
        # A buffer that this object contains twice is written once: the second is a view of the first, see below.
        kept = [0 if index in again else length for index, length in enumerate(lengths)]
        writer = self._writer(kept, {index: view for index, view in known.items() if index not in again})
        coming = _Incoming(saved, writer)
        self._coming.append(coming)  # from here on drop() cleans it up
        self._coming_bytes += saved.nbytes
        for index, extents in enumerate(saved.buffers):
            if index in again:
                writer.buffers[index] = writer.buffers[first[extents]]
                self._counter.add(lengths[index])
            elif index in known:
                self._counter.add(lengths[index])
            else:
                self._fill(coming, extents, writer.buffers[index])

    def _writer(self, lengths: list[int], shared: dict[int, memoryview]) -> parts.PartsWriter:
        if self._coming:
            with suppress(StoreFull):
                return parts.PartsWriter(self._store, lengths, shared, wait_seconds=0)
            # Unsealed objects cannot be evicted, so seal all of ours before waiting for space.
            self._seal_until(0)
        return parts.PartsWriter(self._store, lengths, shared)

    def _fill(self, coming: _Incoming, extents: tuple[Extent, ...], buffer: memoryview) -> None:
        at = 0
        for extent in extents:
            index, _, length = extent
            chunk, view = self._manifest.chunks[index], buffer[at : at + length]
            at += length
            if length == chunk.nbytes and chunk.data is None:
                coming.reads.append(self._workers.submit(self._read, index, view))
            else:
                view[:] = self._piece(extent)
                self._counter.add(length)

    def _read(self, index: int, view: memoryview) -> None:
        self._folder.read_into(self._manifest.chunks[index], view)
        self._counter.add(view.nbytes, moved=view.nbytes)

    def _seal_until(self, left: int) -> None:
        while len(self._coming) > left:
            self._seal_first()

    def _seal_first(self) -> None:
        one = self._coming[0]
        for read in one.reads:
            read.result()
        saved = one.saved
        one.writer.seal(saved.id, saved.tree, name=saved.names[0] if saved.names else "", replace=self._replace)
        self._coming.popleft()
        self._coming_bytes -= saved.nbytes
        bind_names(self._store, saved, saved.names[1:], self._replace)
        self._counter.add(0, objects=1)
        self._remember(saved)

    def _remember(self, saved: SavedObject) -> None:
        for key in set(saved.buffers):
            if self._uses[key] > 0:
                self._uses[key] -= 1
            if not self._uses[key]:
                self._shared.pop(key, None)
            elif key not in self._shared:
                with suppress(ObjectNotFound, ObjectLost):  # deleted meanwhile: then it is read again
                    self._shared[key] = parts.read(self._store, saved.id).buffers[saved.buffers.index(key)]


def _can_be_shared(extents: tuple[Extent, ...]) -> bool:
    return sum(length for _, _, length in extents) >= parts.SHARED_FROM_BYTES
