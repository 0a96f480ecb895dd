"""Listing, verifying and removing existing checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, ObjectLost

from entrepot_checkpoints.manifests.digests import matches
from entrepot_checkpoints.manifests.manifest import CheckpointInfo, Chunk, TableFile
from entrepot_checkpoints.manifests.manifest_codec import HEADER_MAX_BYTES, MANIFEST_NAME, decode_header
from entrepot_checkpoints.parquet.tables import read_verified
from entrepot_checkpoints.reader import read_manifest
from entrepot_checkpoints.storage import locks
from entrepot_checkpoints.storage.chunks import (
    CHUNKS_FOLDER,
    NAMES_FOLDER,
    SHARED_FOLDER,
    ChunkFolder,
    chunk_folder,
    chunk_name,
)
from entrepot_checkpoints.storage.directory import StorageDirectory, open_directory
from entrepot_checkpoints.storage.local_files import TEMPORARY_MARK
from entrepot_checkpoints.thread_pool import BoundedThreadPool, thread_count

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
    return _read_infos(open_directory(url, storage_options))


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
    root, name = open_directory(url, storage_options).split()
    manifest = read_manifest(root, name)
    folder = chunk_folder(root, name, manifest.own_chunks)
    with BoundedThreadPool(thread_count(root.local), "entrepot-verify") as workers:
        futures = [workers.submit(_chunk_problem, folder, chunk, quick) for chunk in manifest.chunks]
        files = [item.file for item in manifest.objects if item.file is not None]
        futures += [workers.submit(_file_problem, root / name, file, quick) for file in files]
        problems = [problem for future in futures if (problem := future.result())]
    nbytes = sum(item.nbytes for item in manifest.chunks) + sum(item.nbytes for item in files)
    return VerifyReport(f"{root.url}/{name}", len(manifest.objects), len(futures), 0 if quick else nbytes, problems)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Result of a prune or a dry run.

    Attributes:
        removed: names of checkpoints.
        chunks: number of chunks that no checkpoint names any more.
        nbytes: their size.
        kept_for: number of saves in progress; if there are any, no chunks are removed, and a later prune removes them.
        names: number of names of durable sessions whose object is not there any more.
    """

    removed: list[str]
    chunks: int
    nbytes: int
    kept_for: int
    names: int = 0


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
    checkpoints: chunks, and names of durable sessions, an hour after they were written.

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
        raise InvalidArgument(f"older_than and keep must be 0 or more, but got {older_than!r} and {keep!r}")
    root = open_directory(url, storage_options)
    if dry_run:
        return _prune(root, match, older_than, keep, 0, remove=False)
    if not root.files(SHARED_FOLDER) and not _read_infos(root):
        return PruneReport([], 0, 0, 0)
    with locks.prune_lock(root) as active_saves:
        return _prune(root, match, older_than, keep, len(active_saves), remove=True)


def remove_checkpoint(root: StorageDirectory, name: str) -> bool:
    """Remove one checkpoint's directory, manifest first, and return whether it existed; shared chunks stay."""
    existed = (root / name).remove(MANIFEST_NAME)
    root.remove_folder(name)
    return existed


def _prune(
    root: StorageDirectory, match: str, older_than: float | None, keep: int | None, active_saves: int, *, remove: bool
) -> PruneReport:
    checkpoints = _read_infos(root)
    removable = _select_removable(checkpoints, match, older_than, keep)
    needed: set[str] = set()
    with BoundedThreadPool(thread_count(root.local), "entrepot-prune") as workers:
        retained = [checkpoint.name for checkpoint in checkpoints if checkpoint.name not in removable]
        for digests in [workers.submit(_shared_chunks, root, name) for name in retained]:
            needed |= digests.result()
    if remove:
        for name in removable:
            remove_checkpoint(root, name)
    names = _prune_names(root, set(retained), remove=remove)
    if active_saves:
        return PruneReport(removable, 0, 0, active_saves, names)
    chunks = nbytes = 0
    with BoundedThreadPool(thread_count(root.local), "entrepot-prune") as workers:
        now = time.time()
        for file in root.files(f"{SHARED_FOLDER}/{CHUNKS_FOLDER}"):
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
    return PruneReport(removable, chunks, nbytes, 0, names)


def _prune_names(root: StorageDirectory, retained: Container[str], *, remove: bool) -> int:
    """Remove names of durable sessions whose object is not there any more; return how many there are.

    Recent ones are left alone: in the background, an object may be written after its name. So are damaged ones, which a
    lookup reports.
    """
    before = time.time() - TEMPORARY_SECONDS
    files = root.files(NAMES_FOLDER)
    old_names = [file.name for file in files if file.modified is not None and file.modified < before]
    with BoundedThreadPool(thread_count(root.local), "entrepot-prune") as workers:
        bound = [(name, workers.submit(_bound_id, root, name)) for name in old_names]
        dangling = [
            (name, oid) for name, result in bound if (oid := result.result()) is not None and oid not in retained
        ]
        if remove:
            for name, oid in dangling:
                workers.submit(_remove_name, root, name, oid)
    return len(dangling)


def _remove_name(root: StorageDirectory, file: str, oid: str) -> None:
    if _bound_id(root, file) == oid:  # not bound to something else since it was read
        root.remove(file)


def _bound_id(root: StorageDirectory, file: str) -> str | None:
    """Return the ID that a file says a name is bound to; None: it is damaged, or has just been removed."""
    try:
        return str(json.loads(root.read(file))["id"])
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _select_removable(
    checkpoints: list[CheckpointInfo], match: str, older_than: float | None, keep: int | None
) -> list[str]:
    if older_than is None and keep is None:
        return []
    matching = [
        checkpoint for checkpoint in checkpoints if fnmatchcase(checkpoint.name, match) and not checkpoint.problem
    ]
    candidates = matching[: max(0, len(matching) - keep)] if keep is not None else matching
    now = time.time()
    return [checkpoint.name for checkpoint in candidates if older_than is None or now - checkpoint.created > older_than]


def _shared_chunks(root: StorageDirectory, name: str) -> set[str]:
    manifest = read_manifest(root, name)
    return set() if manifest.own_chunks else {chunk.digest for chunk in manifest.chunks if chunk.data is None}


def _read_infos(root: StorageDirectory) -> list[CheckpointInfo]:
    with BoundedThreadPool(thread_count(root.local), "entrepot-list") as workers:
        futures = [workers.submit(_read_info, root, name) for name in root.folders() if name != SHARED_FOLDER]
        checkpoints = [info for future in futures if (info := future.result()) is not None]
    return sorted(checkpoints, key=lambda checkpoint: (checkpoint.created, checkpoint.name))


def _read_info(root: StorageDirectory, name: str) -> CheckpointInfo | None:
    url = f"{root.url}/{name}"
    try:
        size = (root / name).size(MANIFEST_NAME)
        if size is None:
            return None  # an unrelated directory, or an incomplete save
        text = (root / name).read(MANIFEST_NAME, 0, min(size, HEADER_MAX_BYTES + 1)) if size else b""
        return replace(decode_header(text, f"{url}/{MANIFEST_NAME}"), url=url, name=name)
    except FileNotFoundError:
        return None
    except EntrepotError as error:
        return CheckpointInfo(url=url, name=name, problem=str(error))


def _chunk_problem(folder: ChunkFolder, chunk: Chunk, quick: bool) -> str:
    try:
        if not quick or chunk.data is not None:
            data = folder.read(chunk)
            if not matches(data, chunk.digest):
                return f"the chunk {chunk_name(chunk.digest)} is damaged: its content does not match its name"
        elif not folder.contains(chunk):
            return f"the chunk {chunk_name(chunk.digest)} is missing or truncated"
    except ObjectLost as error:
        return str(error)
    return ""


def _file_problem(directory: StorageDirectory, file: TableFile, quick: bool) -> str:
    try:
        if not quick:
            read_verified(directory, file)
        elif directory.size(file.name) != file.nbytes:
            return f"the file {file.name} is missing or truncated"
    except (ObjectLost, CorruptData) as error:
        return str(error)
    return ""
