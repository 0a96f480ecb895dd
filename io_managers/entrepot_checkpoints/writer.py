"""Saving: data first, in chunks and by several threads, the manifest last.

An interrupted save leaves chunks but no manifest: an existing checkpoint stays intact, and the next save reuses the
chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from entrepot import raw_objects
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.raw_objects import ObjectEntry

from entrepot_checkpoints.manifests.manifest import Chunk, Extent, FileFormat, Manifest, SavedObject
from entrepot_checkpoints.manifests.manifest_codec import MANIFEST_NAME, decode_manifest, encode_manifest
from entrepot_checkpoints.parquet import datasets, tables
from entrepot_checkpoints.progress import ProgressCallback, ProgressCounter
from entrepot_checkpoints.save_request import SaveRequest, SyntheticObject, manifest_of, resolve_save_request
from entrepot_checkpoints.storage import locks
from entrepot_checkpoints.storage.chunks import (
    CHUNKS_FOLDER,
    INLINE_BYTES,
    PACK_BELOW_BYTES,
    PACK_BYTES,
    ChunkFolder,
    chunk_folder,
    chunk_from_bytes,
    chunk_length,
    chunk_name,
)
from entrepot_checkpoints.storage.directory import StorageDirectory, UnsyncedFolders, open_directory
from entrepot_checkpoints.thread_pool import BoundedThreadPool, thread_count

if TYPE_CHECKING:
    from entrepot import Store


MAX_EARLIER_GENERATIONS = 16  # generations of one ID with the same content; references to older ones are ObjectLost


@dataclass(frozen=True, slots=True)
class SaveReport:
    """The result of a save.

    Attributes:
        url: where the checkpoint is.
        objects: number of objects it holds.
        nbytes: their payload in bytes.
        written_bytes: payload written by this save; the rest existed. If 0 and ``committed`` is False, everything
            existed.
        committed: whether a manifest was written; False if the existing one is equal.
    """

    url: str
    objects: int
    nbytes: int
    written_bytes: int
    committed: bool


def save(
    store: Store,
    what: Any,
    url: str,
    *,
    format: FileFormat = "entrepot",
    incremental: bool = True,
    progress: ProgressCallback | None = None,
    storage_options: Mapping[str, Any] | None = None,
    unsynced: UnsyncedFolders | None = None,
) -> SaveReport:
    """Write a checkpoint; see ``Store.save``.

    Args:
        unsynced: collects directories for the caller to sync, together with those of its other writes; until then a new
            checkpoint may be lost in a crash of the machine. None: synced before this returns.
    """
    if format not in get_args(FileFormat):
        formats = ", ".join(map(repr, get_args(FileFormat)))
        raise InvalidArgument(f"the format of a checkpoint must be one of {formats}, but got {format!r}")
    root, name = open_directory(url, storage_options).split()
    request = resolve_save_request(store, what)
    counter = ProgressCounter(progress, sum(entry.nbytes for entry in request.objects), len(request.objects))
    if format != "entrepot":
        save_all = datasets.save_collection if request.what == "collection" else tables.save_tables
        earlier = read_earlier(root, name)
        return _commit(root, name, earlier, save_all(request, root, name, format, earlier, counter), counter)
    return write_checkpoint(request, root, name, counter, incremental=incremental, unsynced=unsynced)


def write_checkpoint(
    request: SaveRequest,
    root: StorageDirectory,
    name: str,
    counter: ProgressCounter,
    *,
    incremental: bool = True,
    keep_earlier_generations: bool = False,
    unsynced: UnsyncedFolders | None = None,
) -> SaveReport:
    """Write a checkpoint in the store's own format.

    Args:
        request: what to save.
        root, name: where.
        counter: receives progress.
        incremental: as for ``Store.save``.
        keep_earlier_generations: whether the manifest lists earlier (instance, generation) pairs of IDs whose content
            is the same.
        unsynced: as for :func:`save`.
    """
    earlier = read_earlier(root, name)
    nbytes = sum(entry.nbytes for entry in request.objects)
    pending: UnsyncedFolders = {} if unsynced is None else unsynced
    # This little is stored in the manifest: there are no chunks that a prune could remove.
    with nullcontext() if nbytes <= INLINE_BYTES else locks.save_lock(root, pending):
        folder = chunk_folder(root, name, not incremental, reuse_existing=incremental, unsynced=pending)
        threads = 0 if root.local and nbytes <= PACK_BYTES else thread_count(root.local)
        with BoundedThreadPool(threads, "entrepot-save") as workers:
            saver = _Saver(request, folder, workers, counter)
            if incremental and earlier is not None:
                saver.reuse(earlier)
            for entry in request.objects:
                saver.add(entry)
            saver.flush()
        root.sync_folders(pending)  # a reader of the manifest may rely on the chunks, even if we crash now
        manifest = manifest_of(request, "entrepot", not incremental, *saver.result())
        if keep_earlier_generations and earlier is not None:
            manifest = _with_earlier_generations(manifest, earlier)
        report = _commit(root, name, earlier, manifest, counter, pending)
        if unsynced is None:
            root.sync_folders(pending)
        return report


def _with_earlier_generations(manifest: Manifest, earlier: Manifest) -> Manifest:
    """The manifest with the earlier manifest's (instance, generation) pairs of the same content added."""
    earlier_objects = {saved.id: saved for saved in earlier.objects}
    objects = []
    for saved in manifest.objects:
        previous = earlier_objects.get(saved.id)
        if previous is not None and _content(previous, earlier) == _content(saved, manifest):
            current, replaced = (manifest.instance, saved.generation), (earlier.instance, previous.generation)
            pairs = [pair for pair in (*previous.earlier_generations, replaced) if pair != current]
            saved = replace(saved, earlier_generations=tuple(pairs[-MAX_EARLIER_GENERATIONS:]))
        objects.append(saved)
    return replace(manifest, objects=tuple(objects))


def _content(saved: SavedObject, manifest: Manifest) -> tuple[bytes, list[list[tuple[str, int, int]]]]:
    contents = [
        [(manifest.chunks[index].digest, at, length) for index, at, length in extents] for extents in saved.buffers
    ]
    return saved.tree, contents


def read_earlier(root: StorageDirectory, name: str) -> Manifest | None:
    """The existing manifest, if readable; an unreadable one is replaced by the new one.

    Raises:
        VersionMismatch: it was written by a newer version, and an older one must not overwrite it.
    """
    try:
        return decode_manifest((root / name).read(MANIFEST_NAME), f"{root.url}/{name}/{MANIFEST_NAME}")
    except (FileNotFoundError, CorruptData):
        return None
    except VersionMismatch as error:
        raise VersionMismatch(f"{error}, or save to another URL") from error


def _commit(
    root: StorageDirectory,
    name: str,
    earlier: Manifest | None,
    manifest: Manifest,
    counter: ProgressCounter,
    unsynced: UnsyncedFolders | None = None,
) -> SaveReport:
    unchanged = earlier is not None and manifest == replace(
        earlier, created=manifest.created, written_by=manifest.written_by, host=manifest.host
    )
    if not unchanged:
        # When replacing a manifest, sync at once: files named only by the old one are removed afterwards.
        (root / name).write(
            MANIFEST_NAME, encode_manifest(manifest), unsynced=None if earlier is not None else unsynced
        )
        if earlier is not None:
            _remove_replaced_files(root / name, earlier, manifest)
    elif unsynced is not None:  # its writer may have been killed before syncing it
        (root / name).mark_unsynced(MANIFEST_NAME, unsynced, folders=2)
    return SaveReport(f"{root.url}/{name}", len(manifest.objects), manifest.size, counter.moved_bytes, not unchanged)


def _remove_replaced_files(directory: StorageDirectory, earlier: Manifest, manifest: Manifest) -> None:
    """Remove files of the checkpoint's own directory that only the replaced manifest named."""

    def own_files(owner: Manifest) -> set[str]:
        files = {saved.file.name for saved in owner.objects if saved.file is not None}
        chunks = {
            f"{CHUNKS_FOLDER}/{chunk_name(chunk.digest)}"
            for chunk in owner.chunks
            if owner.own_chunks and not chunk.data
        }
        return files | chunks

    for obsolete in own_files(earlier) - own_files(manifest):
        directory.remove(obsolete)


@dataclass(slots=True)
class _Pack:
    """Small buffers that become one chunk."""

    data: bytearray = field(default_factory=bytearray)
    future: Future[tuple[Chunk, int]] | None = None  # set when it is full


_Source = Chunk | Future[tuple[Chunk, int]] | _Pack
_Piece = tuple[_Source, int, int]  # source, offset, length


class _Saver:
    """Cuts objects into chunks. Used by one thread; other threads write the chunks."""

    def __init__(
        self, request: SaveRequest, folder: ChunkFolder, workers: BoundedThreadPool, counter: ProgressCounter
    ) -> None:
        self._request = request
        self._folder = folder
        self._workers = workers
        self._counter = counter
        self._reusable: dict[Any, tuple[SavedObject, Manifest]] = {}
        self._objects: list[tuple[SavedObject, list[list[_Piece]]]] = []
        self._packs: list[_Pack] = []

    def reuse(self, earlier: Manifest) -> None:
        """Reuse objects of an earlier manifest whose generation is unchanged and whose chunks all exist."""
        if earlier.instance != self._request.store.instance_id or earlier.own_chunks or earlier.format != "entrepot":
            return
        current = {(item.id, item.generation) for item in self._request.objects if item.generation}
        unchanged = [item for item in earlier.objects if (item.id, item.generation) in current]
        needed = {index for item in unchanged for extents in item.buffers for index, _, _ in extents}
        futures = {
            index: self._workers.submit(self._folder.contains, earlier.chunks[index])
            for index in sorted(needed)
            if earlier.chunks[index].data is None
        }
        missing = {index for index, future in futures.items() if not future.result()}
        for item in unchanged:
            if not any(index in missing for extents in item.buffers for index, _, _ in extents):
                self._reusable[item.id, item.generation] = (item, earlier)

    def add(self, entry: ObjectEntry) -> None:
        """Add one object."""
        if reusable := self._reusable.get((entry.id, entry.generation)):
            earlier, manifest = reusable
            pieces: list[list[_Piece]] = [
                [(manifest.chunks[index], offset, length) for index, offset, length in extents]
                for extents in earlier.buffers
            ]
            self._objects.append((replace(earlier, names=entry.names), pieces))
            self._counter.add(earlier.nbytes, objects=1)
            return
        synthetic = self._request.synthetic
        source: raw_objects.RawObject | SyntheticObject
        try:
            source = (
                synthetic
                if synthetic is not None and synthetic.id == entry.id
                else raw_objects.read(self._request.store, entry.id)
            )
        except ObjectNotFound as error:
            if not self._request.strict:
                return
            raise ObjectNotFound(f"object {entry.id} was deleted while it was being saved") from error
        saved = SavedObject(source.id, source.generation, unpack_tree(source.tree).codec, source.tree, entry.names)
        pieces = [self._split(buffer) for buffer in source.buffers]
        self._objects.append((saved, pieces))
        self._counter.add(0, objects=1)

    def _split(self, buffer: memoryview) -> list[_Piece]:
        if buffer.nbytes == 0:
            return []
        if buffer.nbytes < PACK_BELOW_BYTES:
            if not self._packs or self._packs[-1].future or len(self._packs[-1].data) + buffer.nbytes > PACK_BYTES:
                self._close_pack()
                self._packs.append(_Pack())
            pack = self._packs[-1]
            at = len(pack.data)
            pack.data += buffer
            return [(pack, at, buffer.nbytes)]
        length = chunk_length(buffer.nbytes)
        cuts = [buffer[at : at + length] for at in range(0, buffer.nbytes, length)]
        return [(self._workers.submit(self._write, cut), 0, cut.nbytes) for cut in cuts]

    def _write(self, data: memoryview) -> tuple[Chunk, int]:
        done = self._folder.write(data)
        self._counter.add(data.nbytes, moved=done[1])
        return done

    def _close_pack(self) -> None:
        if self._packs and self._packs[-1].future is None:
            pack = self._packs[-1]
            pack.future = self._workers.submit(self._write_pack, pack)

    def _write_pack(self, pack: _Pack) -> tuple[Chunk, int]:
        with memoryview(pack.data) as view:
            done = self._write(view)
        pack.data = bytearray()
        return done

    def flush(self) -> None:
        """Write the remaining pack; a small one is kept for the manifest."""
        if len(self._packs) == 1 and self._packs[0].future is None and len(self._packs[0].data) <= INLINE_BYTES:
            return
        self._close_pack()

    def result(self) -> tuple[list[Chunk], list[SavedObject]]:
        """The chunks and objects, after all writes."""
        chunks: list[Chunk] = []
        numbers: dict[tuple[str, bool], int] = {}

        def number_of(source: _Source) -> int:
            chunk = self._chunk(source)
            key = (chunk.digest, chunk.data is None)
            if key not in numbers:
                numbers[key] = len(chunks)
                chunks.append(chunk)
            return numbers[key]

        objects = []
        for saved, buffers in self._objects:
            extents: list[tuple[Extent, ...]] = [
                tuple((number_of(source), offset, length) for source, offset, length in pieces) for pieces in buffers
            ]
            objects.append(replace(saved, buffers=tuple(extents)))
        return chunks, objects

    def _chunk(self, source: _Source) -> Chunk:
        if isinstance(source, Chunk):
            return source
        if isinstance(source, Future):
            return source.result()[0]
        if source.future is not None:
            return source.future.result()[0]
        data = bytes(source.data)
        return replace(chunk_from_bytes(data), data=data)
