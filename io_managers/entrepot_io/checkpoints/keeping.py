"""Listing, verifying and removing existing checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, ObjectLost

from entrepot_io.checkpoints import guard
from entrepot_io.checkpoints.chunks import CHUNKS, SHARED, ChunkFolder, chunk_folder, chunk_name
from entrepot_io.checkpoints.digests import matches
from entrepot_io.checkpoints.loading import read_manifest
from entrepot_io.checkpoints.local_files import TEMPORARY_MARK
from entrepot_io.checkpoints.manifest import CheckpointInfo, Chunk, TableFile
from entrepot_io.checkpoints.manifest_text import HEADER_MAX_BYTES, MANIFEST, header_of
from entrepot_io.checkpoints.places import Place, open_place
from entrepot_io.checkpoints.workers import Workers, thread_count

# Temporary files older than this were left by a process that died; a write in progress takes less.
TEMPORARY_SECONDS = 3600.0


def list_checkpoints(url: str, *, storage_options: Mapping[str, Any] | None = None) -> list[CheckpointInfo]:
    """The checkpoints under a root, oldest first; ``problem`` is set for those whose manifest cannot be read.

    Args:
        url: the root: the parent directory of the checkpoints.
        storage_options: for fsspec's driver.

    Raises:
        InvalidArgument, AccessDenied, StoreUnavailable: the directory cannot be read.
    """
    return _listed(open_place(url, storage_options))


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a verification.

    Attributes:
        url: of the checkpoint.
        objects: how many objects it holds.
        chunks: how many chunks and files were checked.
        nbytes: how many bytes were read.
        problems: one text for each problem; if empty, the checkpoint can be loaded.
    """

    url: str
    objects: int
    chunks: int
    nbytes: int
    problems: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify(url: str, *, quick: bool = False, storage_options: Mapping[str, Any] | None = None) -> VerifyReport:
    """Read a checkpoint as a load would and compare all checksums, without storing anything.

    Args:
        url: of the checkpoint.
        quick: only check that everything exists in its full length.
        storage_options: for fsspec's driver.

    Raises:
        ObjectNotFound: there is no checkpoint.
        CorruptData, VersionMismatch: its manifest cannot be read.
        InvalidArgument, AccessDenied, StoreUnavailable: the target cannot be read.
    """
    root, name = open_place(url, storage_options).split()
    manifest = read_manifest(root, name)
    folder = chunk_folder(root, name, manifest.own_chunks)
    with Workers(thread_count(root.local), "entrepot-verify") as workers:
        looks = [workers.submit(_chunk_problem, folder, chunk, quick) for chunk in manifest.chunks]
        files = [one.file for one in manifest.objects if one.file is not None]
        looks += [workers.submit(_file_problem, root / name, file, quick) for file in files]
        problems = [problem for look in looks if (problem := look.result())]
    nbytes = sum(one.nbytes for one in manifest.chunks) + sum(one.nbytes for one in files)
    return VerifyReport(f"{root.url}/{name}", len(manifest.objects), len(looks), 0 if quick else nbytes, problems)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune removed, or would remove.

    Attributes:
        removed: names of checkpoints.
        chunks: number of chunks that no checkpoint names any more.
        nbytes: their size.
        kept_for: number of saves in progress; if there are any, no chunks are removed, and a later prune removes them.
    """

    removed: list[str]
    chunks: int
    nbytes: int
    kept_for: int


def prune(
    url: str,
    *,
    match: str = "*",
    older_than: float | None = None,
    keep: int | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> PruneReport:
    """Remove old checkpoints under a root, and chunks that none of the remaining ones needs.

    Without ``older_than`` and ``keep`` no checkpoint is removed, only leftovers of failed saves and of removed
    checkpoints.

    Args:
        url: the root.
        match: a glob; only checkpoints with a matching name may be removed.
        older_than: remove those written more than this many seconds ago.
        keep: keep the newest ``keep`` of those that match; without ``older_than``, remove all others.
        dry_run: remove nothing, only report what would be removed.
        storage_options: for fsspec's driver.

    Raises:
        CorruptData, VersionMismatch: the manifest of a checkpoint to be kept cannot be read, so the chunks it needs are
            unknown. Nothing was removed.
        InvalidArgument: a negative number, or the location cannot be used.
        AccessDenied, StoreUnavailable: the target cannot be read or written.
    """
    if (older_than is not None and older_than < 0) or (keep is not None and keep < 0):
        raise InvalidArgument(f"older_than and keep are 0 or more, but got {older_than!r} and {keep!r}")
    root = open_place(url, storage_options)
    if dry_run:
        return _prune(root, match, older_than, keep, 0, remove=False)
    if not root.files(SHARED) and not _listed(root):
        return PruneReport([], 0, 0, 0)
    with guard.pruning(root) as savers:
        return _prune(root, match, older_than, keep, len(savers), remove=True)


def remove_checkpoint(root: Place, name: str) -> bool:
    """Remove one checkpoint's directory, manifest first, and return whether it existed; shared chunks stay."""
    there = (root / name).remove(MANIFEST)
    root.remove_folder(name)
    return there


def _prune(
    root: Place, match: str, older_than: float | None, keep: int | None, savers: int, *, remove: bool
) -> PruneReport:
    found = _listed(root)
    leaving = _leaving(found, match, older_than, keep)
    needed: set[str] = set()
    with Workers(thread_count(root.local), "entrepot-prune") as workers:
        staying = [one.name for one in found if one.name not in leaving]
        for digests in [workers.submit(_shared_chunks, root, name) for name in staying]:
            needed |= digests.result()
    if remove:
        for name in leaving:
            remove_checkpoint(root, name)
    if savers:
        return PruneReport(leaving, 0, 0, savers)
    chunks = nbytes = 0
    with Workers(thread_count(root.local), "entrepot-prune") as workers:
        now = time.time()
        for file in root.files(f"{SHARED}/{CHUNKS}"):
            digest = file.name.rpartition("/")[2]
            if TEMPORARY_MARK in digest:
                if file.modified is None or now - file.modified < TEMPORARY_SECONDS:
                    continue
            elif digest in needed:
                continue
            chunks += 1
            nbytes += file.nbytes
            if remove:
                workers.submit(root.remove, file.name)
    return PruneReport(leaving, chunks, nbytes, 0)


def _leaving(found: list[CheckpointInfo], match: str, older_than: float | None, keep: int | None) -> list[str]:
    if older_than is None and keep is None:
        return []
    matching = [one for one in found if fnmatchcase(one.name, match) and not one.problem]
    candidates = matching[: max(0, len(matching) - keep)] if keep is not None else matching
    now = time.time()
    return [one.name for one in candidates if older_than is None or now - one.created > older_than]


def _shared_chunks(root: Place, name: str) -> set[str]:
    manifest = read_manifest(root, name)
    return set() if manifest.own_chunks else {chunk.digest for chunk in manifest.chunks if chunk.data is None}


def _listed(root: Place) -> list[CheckpointInfo]:
    with Workers(thread_count(root.local), "entrepot-list") as workers:
        looks = [workers.submit(_look, root, name) for name in root.folders() if name != SHARED]
        found = [info for look in looks if (info := look.result()) is not None]
    return sorted(found, key=lambda one: (one.created, one.name))


def _look(root: Place, name: str) -> CheckpointInfo | None:
    url = f"{root.url}/{name}"
    try:
        size = (root / name).size(MANIFEST)
        if size is None:
            return None  # an unrelated directory, or an incomplete save
        text = (root / name).read(MANIFEST, 0, min(size, HEADER_MAX_BYTES + 1)) if size else b""
        return replace(header_of(text, f"{url}/{MANIFEST}"), url=url, name=name)
    except FileNotFoundError:
        return None
    except EntrepotError as error:
        return CheckpointInfo(url=url, name=name, problem=str(error))


def _chunk_problem(folder: ChunkFolder, chunk: Chunk, quick: bool) -> str:
    try:
        if not quick or chunk.data is not None:
            data = folder.read(chunk)
            if not matches(data, chunk.digest):
                return f"the chunk {chunk_name(chunk.digest)} is damaged: its content is not what its name says"
        elif not folder.holds(chunk):
            return f"the chunk {chunk_name(chunk.digest)} is not there, or not in its full length"
    except ObjectLost as error:
        return str(error)
    return ""


def _file_problem(place: Place, file: TableFile, quick: bool) -> str:
    from entrepot_io.checkpoints.parquet import checked_bytes

    try:
        if not quick:
            checked_bytes(place, file)
        elif place.size(file.name) != file.nbytes:
            return f"the file {file.name} is not there, or not in its full length"
    except (ObjectLost, CorruptData) as error:
        return str(error)
    return ""
