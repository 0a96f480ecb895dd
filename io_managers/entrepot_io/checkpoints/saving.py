"""Saving: data first, in chunks and by several threads, the manifest last.

An interrupted save leaves chunks but no manifest: an existing checkpoint stays intact, and the next save reuses the
chunks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from entrepot import _core, parts
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.parts import Listed

from entrepot_io.checkpoints import guard
from entrepot_io.checkpoints.chunks import (
    CHUNKS,
    INLINE_BYTES,
    PACK_BELOW_BYTES,
    PACK_BYTES,
    ChunkFolder,
    chunk_folder,
    chunk_length,
    chunk_name,
    identified,
)
from entrepot_io.checkpoints.manifest import Chunk, Extent, FileFormat, Manifest, SavedObject
from entrepot_io.checkpoints.manifest_text import MANIFEST, from_text, to_text
from entrepot_io.checkpoints.places import Place, Unsettled, open_place
from entrepot_io.checkpoints.progress import Counter, ProgressCallback
from entrepot_io.checkpoints.request import Made, Wanted, wanted
from entrepot_io.checkpoints.workers import Workers, thread_count

if TYPE_CHECKING:
    from entrepot import Store


LIVES_KEPT = 16  # generations of one ID with the same content; references to older ones are ObjectLost


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
    unsettled: Unsettled | None = None,
) -> SaveReport:
    """Write a checkpoint; see ``Store.save``.

    Args:
        unsettled: collects directories for the caller to settle, together with its other writes; until then a new
            checkpoint may be lost in a crash of the machine. None: settled before this returns.
    """
    if format not in ("entrepot", "parquet"):
        raise InvalidArgument(f"the format of a checkpoint is 'entrepot' or 'parquet', but got {format!r}")
    root, name = open_place(url, storage_options).split()
    asked = wanted(store, what)
    counter = Counter(progress, sum(one.nbytes for one in asked.objects), len(asked.objects))
    if format == "parquet":
        from entrepot_io.checkpoints import parquet, parquet_collections

        save_all = parquet_collections.save_collection if asked.what == "collection" else parquet.save_tables
        earlier = read_earlier(root, name)
        return _committed(root, name, earlier, save_all(asked, root, name, earlier, counter), counter)
    return save_wanted(asked, root, name, counter, incremental=incremental, unsettled=unsettled)


def save_wanted(
    asked: Wanted,
    root: Place,
    name: str,
    counter: Counter,
    *,
    incremental: bool = True,
    keep_lives: bool = False,
    unsettled: Unsettled | None = None,
) -> SaveReport:
    """Write a checkpoint in the store's own format.

    Args:
        asked: what to save.
        root, name: where.
        counter: receives progress.
        incremental: as for ``Store.save``.
        keep_lives: whether the manifest lists earlier (instance, generation) pairs of IDs whose content is the same.
        unsettled: as for :func:`save`.
    """
    earlier = read_earlier(root, name)
    nbytes = sum(one.nbytes for one in asked.objects)
    pending: Unsettled = {} if unsettled is None else unsettled
    # This little is stored in the manifest: there are no chunks that a prune could remove.
    with nullcontext() if nbytes <= INLINE_BYTES else guard.saving(root, pending):
        folder = chunk_folder(root, name, not incremental, trust=incremental, unsettled=pending)
        threads = 0 if root.local and nbytes <= PACK_BYTES else thread_count(root.local)
        with Workers(threads, "entrepot-save") as workers:
            saver = _Saver(asked, folder, workers, counter)
            if incremental and earlier is not None:
                saver.know(earlier)
            for one in asked.objects:
                saver.add(one)
            saver.flush()
        root.settle(pending)  # whoever sees the manifest may rely on the chunks, even if we crash now
        manifest = manifest_of(asked, "entrepot", not incremental, *saver.result())
        if keep_lives and earlier is not None:
            manifest = _with_lives(manifest, earlier)
        report = _committed(root, name, earlier, manifest, counter, pending)
        if unsettled is None:
            root.settle(pending)
        return report


def _with_lives(manifest: Manifest, earlier: Manifest) -> Manifest:
    """The manifest with the earlier manifest's (instance, generation) pairs of the same content added."""
    before = {one.id: one for one in earlier.objects}
    objects = []
    for one in manifest.objects:
        was = before.get(one.id)
        if was is not None and _content(was, earlier) == _content(one, manifest):
            life, old = (manifest.instance, one.generation), (earlier.instance, was.generation)
            lives = [known for known in (*was.lives, old) if known != life]
            one = replace(one, lives=tuple(lives[-LIVES_KEPT:]))
        objects.append(one)
    return replace(manifest, objects=tuple(objects))


def _content(saved: SavedObject, manifest: Manifest) -> tuple[bytes, list[list[tuple[str, int, int]]]]:
    places = [
        [(manifest.chunks[index].digest, at, length) for index, at, length in extents] for extents in saved.buffers
    ]
    return saved.tree, places


def read_earlier(root: Place, name: str) -> Manifest | None:
    """The existing manifest, if readable; an unreadable one is replaced by the new one.

    Raises:
        VersionMismatch: it was written by a newer version, and an older one must not overwrite it.
    """
    try:
        return from_text((root / name).read(MANIFEST), f"{root.url}/{name}/{MANIFEST}")
    except (FileNotFoundError, CorruptData):
        return None
    except VersionMismatch as error:
        raise VersionMismatch(f"{error}; or save under another URL") from error


def manifest_of(
    asked: Wanted, format: FileFormat, own: bool, chunks: list[Chunk], objects: list[SavedObject]
) -> Manifest:
    """The manifest of a request, once its objects are stored."""
    present = {one.id for one in objects}
    return Manifest(
        what=asked.what,
        format=format,
        scope=asked.store.scope,
        session=asked.store.session_name,
        instance=asked.store.instance_id,
        host=asked.store.host,
        created=time.time(),
        written_by=f"entrepot {_core.VERSION}",
        own_chunks=own,
        roots=tuple(oid for oid in asked.roots if oid in present),
        chunks=tuple(chunks),
        objects=tuple(objects),
    )


def _committed(
    root: Place,
    name: str,
    earlier: Manifest | None,
    manifest: Manifest,
    counter: Counter,
    unsettled: Unsettled | None = None,
) -> SaveReport:
    same = earlier is not None and manifest == replace(
        earlier, created=manifest.created, written_by=manifest.written_by, host=manifest.host
    )
    if not same:
        # When replacing a manifest, settle at once: files named only by the old one are removed afterwards.
        (root / name).write(MANIFEST, to_text(manifest), unsettled=None if earlier is not None else unsettled)
        if earlier is not None:
            _tidy(root / name, earlier, manifest)
    elif unsettled is not None:  # its writer may have been killed before settling it
        (root / name).unsettle(MANIFEST, unsettled, folders=2)
    return SaveReport(f"{root.url}/{name}", len(manifest.objects), manifest.size, counter.moved_bytes, not same)


def _tidy(place: Place, earlier: Manifest, manifest: Manifest) -> None:
    """Remove files of the checkpoint's own directory that only the replaced manifest named."""

    def own(one: Manifest) -> set[str]:
        files = {saved.file.name for saved in one.objects if saved.file is not None}
        chunks = {f"{CHUNKS}/{chunk_name(chunk.digest)}" for chunk in one.chunks if one.own_chunks and not chunk.data}
        return files | chunks

    for gone in own(earlier) - own(manifest):
        place.remove(gone)


@dataclass(slots=True)
class _Pack:
    """Small buffers that become one chunk."""

    data: bytearray = field(default_factory=bytearray)
    future: Future[tuple[Chunk, int]] | None = None  # set when it is full


_Source = Chunk | Future[tuple[Chunk, int]] | _Pack
_Piece = tuple[_Source, int, int]  # source, offset, length


class _Saver:
    """Cuts objects into chunks. Used by one thread; other threads write the chunks."""

    def __init__(self, asked: Wanted, folder: ChunkFolder, workers: Workers, counter: Counter) -> None:
        self._asked = asked
        self._folder = folder
        self._workers = workers
        self._counter = counter
        self._known: dict[Any, tuple[SavedObject, Manifest]] = {}
        self._objects: list[tuple[SavedObject, list[list[_Piece]]]] = []
        self._packs: list[_Pack] = []

    def know(self, earlier: Manifest) -> None:
        """Reuse objects of an earlier manifest whose generation is unchanged and whose chunks all exist."""
        if earlier.instance != self._asked.store.instance_id or earlier.own_chunks or earlier.format != "entrepot":
            return
        live = {(one.id, one.generation) for one in self._asked.objects if one.generation}
        same = [one for one in earlier.objects if (one.id, one.generation) in live]
        needed = {index for one in same for extents in one.buffers for index, _, _ in extents}
        looks = {
            index: self._workers.submit(self._folder.holds, earlier.chunks[index])
            for index in sorted(needed)
            if earlier.chunks[index].data is None
        }
        missing = {index for index, look in looks.items() if not look.result()}
        for one in same:
            if not any(index in missing for extents in one.buffers for index, _, _ in extents):
                self._known[one.id, one.generation] = (one, earlier)

    def add(self, listed: Listed) -> None:
        """Add one object."""
        if known := self._known.get((listed.id, listed.generation)):
            before, manifest = known
            pieces: list[list[_Piece]] = [
                [(manifest.chunks[index], offset, length) for index, offset, length in extents]
                for extents in before.buffers
            ]
            self._objects.append((replace(before, names=listed.names), pieces))
            self._counter.add(before.nbytes, objects=1)
            return
        made = self._asked.made
        held: parts.ObjectParts | Made
        try:
            held = made if made is not None and made.id == listed.id else parts.read(self._asked.store, listed.id)
        except ObjectNotFound as error:
            if not self._asked.strict:
                return
            raise ObjectNotFound(f"object {listed.id} was deleted while it was being saved") from error
        saved = SavedObject(held.id, held.generation, unpack_tree(held.tree).codec, held.tree, listed.names)
        pieces = [self._cut(buffer) for buffer in held.buffers]
        self._objects.append((saved, pieces))
        self._counter.add(0, objects=1)

    def _cut(self, buffer: memoryview) -> list[_Piece]:
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
        return replace(identified(data), data=data)
