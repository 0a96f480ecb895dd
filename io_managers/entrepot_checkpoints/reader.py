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

from entrepot import raw_objects
from entrepot.errors import ObjectExists, ObjectLost, ObjectNotFound, StoreFull
from entrepot.ids import ObjectID

from entrepot_checkpoints.manifests.digests import can_check, matches
from entrepot_checkpoints.manifests.manifest import Extent, Manifest, SavedObject
from entrepot_checkpoints.manifests.manifest_codec import MANIFEST_NAME, decode_manifest
from entrepot_checkpoints.name_binding import bind_names
from entrepot_checkpoints.parquet import datasets, tables
from entrepot_checkpoints.progress import ProgressCallback, ProgressCounter
from entrepot_checkpoints.storage.chunks import ChunkFolder, chunk_folder
from entrepot_checkpoints.storage.directory import StorageDirectory, open_directory
from entrepot_checkpoints.thread_pool import BoundedThreadPool, thread_count

if TYPE_CHECKING:
    from entrepot import Store

# Limit on bytes in flight: enough to keep all threads busy. Unsealed objects cannot be evicted to make space for
# others, so in a small store the limit is lower.
PREFETCH_BYTES = 192 << 20
PREFETCH_CAPACITY_DIVISOR = 4
SMALL_BATCH = 256
MAX_CACHED_PACKS = 4


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
    root, name = open_directory(url, storage_options).split()
    manifest = read_manifest(root, name)
    with nullcontext(store) if session is None else store.session(session) as target:
        load_manifest(target, manifest, root, name, replace=replace, progress=progress)
        if (durable := target.durable) is not None:
            for saved in manifest.objects:
                if durable.covers("") or any(map(durable.covers, saved.names)):
                    target.make_durable(saved.id)
    return manifest.roots[0] if manifest.what in ("object", "collection") else list(manifest.roots)


def read_manifest(root: StorageDirectory, name: str) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        ObjectNotFound: there is no checkpoint.
        CorruptData, VersionMismatch: it cannot be read.
    """
    url = f"{root.url}/{name}"
    try:
        text = (root / name).read(MANIFEST_NAME)
    except FileNotFoundError as error:
        raise ObjectNotFound(
            f"there is no checkpoint at {url}: nothing was saved there, or the save did not finish; "
            f"'entrepot checkpoints list {root.url}' shows the existing ones"
        ) from error
    return decode_manifest(text, f"{url}/{MANIFEST_NAME}")


def load_manifest(
    store: Store,
    manifest: Manifest,
    root: StorageDirectory,
    name: str,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
) -> None:
    """Load the objects and names of a manifest into a store's session."""
    counter = ProgressCounter(progress, manifest.nbytes, len(manifest.objects))
    if manifest.format != "entrepot":
        load_files = datasets.load_collection if manifest.what == "collection" else tables.load_tables
        load_files(store, manifest, root / name, replace, counter)
        return
    with BoundedThreadPool(thread_count(root.local), "entrepot-load") as workers:
        loader = _Loader(store, manifest, chunk_folder(root, name, manifest.own_chunks), workers, replace, counter)
        try:
            for saved in manifest.objects:
                loader.add(saved)
            loader.finish()
        finally:
            loader.discard()


@dataclass(slots=True)
class _PendingObject:
    """An object whose bytes are being read."""

    saved: SavedObject
    writer: raw_objects.RawObjectWriter
    reads: list[Future[None]] = field(default_factory=list)


class _Loader:
    """Loads objects in order, with their bytes read ahead by threads. Used by one thread."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        folder: ChunkFolder,
        workers: BoundedThreadPool,
        replace: bool,
        counter: ProgressCounter,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._folder = folder
        self._workers = workers
        self._replace = replace
        self._counter = counter
        self._pending: deque[_PendingObject] = deque()
        self._pending_bytes = 0
        self._prefetch_bytes = min(PREFETCH_BYTES, int(store.status()["capacity_bytes"]) // PREFETCH_CAPACITY_DIVISOR)
        self._small_objects: list[tuple[SavedObject, raw_objects.SmallObject]] = []
        self._pack_cache: OrderedDict[int, bytes] = OrderedDict()
        # Buffers shared by several objects are stored once, as in the store they were saved from.
        self._use_counts = Tally(key for saved in manifest.objects for key in set(saved.buffers) if _can_be_shared(key))
        self._shared_buffers: dict[tuple[Extent, ...], memoryview] = {}

    def add(self, saved: SavedObject) -> None:
        """Start loading one object."""
        if self._exists(saved):
            bind_names(self._store, saved, saved.names, self._replace)
            self._counter.add(saved.nbytes, objects=1)
            return
        if saved.nbytes <= raw_objects.SMALL_BYTES:
            buffers = [b"".join(self._read_extent(extent) for extent in extents) for extents in saved.buffers]
            name = saved.names[0] if saved.names else ""
            self._small_objects.append((saved, raw_objects.SmallObject(saved.id, saved.tree, buffers, name)))
            if len(self._small_objects) >= SMALL_BATCH:
                self._put_small()
            return
        repeated = [key for key in set(saved.buffers) if self._use_counts[key] > 1]
        if any(
            key not in self._shared_buffers and key in pending.saved.buffers
            for key in repeated
            for pending in self._pending
        ):
            self._seal_until(0)  # a buffer that it shares is still being loaded
        while self._pending and self._pending_bytes + saved.nbytes > self._prefetch_bytes:
            self._seal_first()
        self._start(saved)

    def finish(self) -> None:
        """Seal everything in flight."""
        self._put_small()
        self._seal_until(0)

    def discard(self) -> None:
        """Discard what is not sealed, once no thread writes to it any more."""
        for pending in self._pending:
            for read in pending.reads:
                read.cancel()
        for pending in self._pending:
            wait(pending.reads)
            pending.writer.drop()
        self._pending.clear()
        self._shared_buffers.clear()

    # --- existing objects

    def _exists(self, saved: SavedObject) -> bool:
        try:
            existing = raw_objects.read(self._store, saved.id)
        except ObjectNotFound:
            return False
        except ObjectLost:
            raw_objects.discard(self._store, saved.id)  # lost in this store: load it now
            return False
        if existing.generation == saved.generation and self._store.instance_id == self._manifest.instance:
            return True
        if existing.tree == saved.tree and self._same_bytes(saved, existing):
            return True
        if self._replace:
            return False
        raise ObjectExists(
            f"object {saved.id} of the checkpoint already exists in this store with different content: load with "
            "replace=True, or delete it first"
        )

    def _same_bytes(self, saved: SavedObject, existing: raw_objects.RawObject) -> bool:
        lengths = [sum(length for _, _, length in extents) for extents in saved.buffers]
        if lengths != [buffer.nbytes for buffer in existing.buffers]:
            return False
        for extents, buffer in zip(saved.buffers, existing.buffers, strict=True):
            at = 0
            for extent in extents:
                index, _, length = extent
                chunk, part = self._manifest.chunks[index], buffer[at : at + length]
                at += length
                if length == chunk.nbytes and can_check(chunk.digest):
                    if not matches(part, chunk.digest):
                        return False
                elif part != self._read_extent(extent):
                    return False
        return True

    # --- small objects

    def _read_extent(self, extent: Extent) -> memoryview:
        index, offset, length = extent
        pack = self._pack_cache.get(index)
        if pack is None:
            chunk = self._manifest.chunks[index]
            pack = self._pack_cache[index] = self._folder.read(chunk)
            self._counter.add(0, moved=chunk.nbytes if chunk.data is None else 0)
            if len(self._pack_cache) > MAX_CACHED_PACKS:
                self._pack_cache.popitem(last=False)
        else:
            self._pack_cache.move_to_end(index)
        return memoryview(pack)[offset : offset + length]

    def _put_small(self) -> None:
        if not self._small_objects:
            return
        batch, self._small_objects = self._small_objects, []
        raw_objects.put_small(self._store, [small for _, small in batch], replace=self._replace)
        for saved, _ in batch:
            bind_names(self._store, saved, saved.names[1:], self._replace)
            self._counter.add(saved.nbytes, objects=1)

    # --- large objects

    def _start(self, saved: SavedObject) -> None:
        lengths = [sum(length for _, _, length in extents) for extents in saved.buffers]
        shared = {
            index: self._shared_buffers[key] for index, key in enumerate(saved.buffers) if key in self._shared_buffers
        }
        first_index = {key: index for index, key in reversed(list(enumerate(saved.buffers))) if _can_be_shared(key)}
        duplicates = {index for index, key in enumerate(saved.buffers) if first_index.get(key, index) != index}
        # A buffer that this object contains twice is written once: the second is a view of the first, see below.
        unique_lengths = [0 if index in duplicates else length for index, length in enumerate(lengths)]
        writer = self._open_writer(
            unique_lengths, {index: view for index, view in shared.items() if index not in duplicates}
        )
        pending = _PendingObject(saved, writer)
        self._pending.append(pending)  # from here on discard() cleans it up
        self._pending_bytes += saved.nbytes
        for index, extents in enumerate(saved.buffers):
            if index in duplicates:
                writer.buffers[index] = writer.buffers[first_index[extents]]
                self._counter.add(lengths[index])
            elif index in shared:
                self._counter.add(lengths[index])
            else:
                self._fill(pending, extents, writer.buffers[index])

    def _open_writer(self, lengths: list[int], shared: dict[int, memoryview]) -> raw_objects.RawObjectWriter:
        if self._pending:
            with suppress(StoreFull):
                return raw_objects.RawObjectWriter(self._store, lengths, shared, wait_seconds=0)
            # Unsealed objects cannot be evicted, so seal all of ours before waiting for space.
            self._seal_until(0)
        return raw_objects.RawObjectWriter(self._store, lengths, shared)

    def _fill(self, pending: _PendingObject, extents: tuple[Extent, ...], buffer: memoryview) -> None:
        at = 0
        for extent in extents:
            index, _, length = extent
            chunk, view = self._manifest.chunks[index], buffer[at : at + length]
            at += length
            if length == chunk.nbytes and chunk.data is None:
                pending.reads.append(self._workers.submit(self._read_chunk, index, view))
            else:
                view[:] = self._read_extent(extent)
                self._counter.add(length)

    def _read_chunk(self, index: int, view: memoryview) -> None:
        self._folder.read_into(self._manifest.chunks[index], view)
        self._counter.add(view.nbytes, moved=view.nbytes)

    def _seal_until(self, remaining: int) -> None:
        while len(self._pending) > remaining:
            self._seal_first()

    def _seal_first(self) -> None:
        pending = self._pending[0]
        for read in pending.reads:
            read.result()
        saved = pending.saved
        pending.writer.seal(saved.id, saved.tree, name=saved.names[0] if saved.names else "", replace=self._replace)
        self._pending.popleft()
        self._pending_bytes -= saved.nbytes
        bind_names(self._store, saved, saved.names[1:], self._replace)
        self._counter.add(0, objects=1)
        self._retain_shared_buffers(saved)

    def _retain_shared_buffers(self, saved: SavedObject) -> None:
        for key in set(saved.buffers):
            if self._use_counts[key] > 0:
                self._use_counts[key] -= 1
            if not self._use_counts[key]:
                self._shared_buffers.pop(key, None)
            elif key not in self._shared_buffers:
                with suppress(ObjectNotFound, ObjectLost):  # deleted meanwhile: then it is read again
                    self._shared_buffers[key] = raw_objects.read(self._store, saved.id).buffers[
                        saved.buffers.index(key)
                    ]


def _can_be_shared(extents: tuple[Extent, ...]) -> bool:
    return sum(length for _, _, length in extents) >= raw_objects.SHARED_FROM_BYTES
