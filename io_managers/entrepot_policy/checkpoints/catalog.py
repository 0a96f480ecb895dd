"""The catalog of a target: finds the checkpoints of an object without knowing their directories.

    BASE/.entrepot/catalog/objects/<2 digits>/<ID>/<time>-<random>.json   an entry for each checkpoint of an object
    BASE/.entrepot/catalog/outputs/<digest>/<time>-<random>.json          for rules with keep: by output, over all runs

Files are written once and removed, never modified, so no locks are needed. The entry is written after the checkpoint,
so the checkpoint it names is complete. Both are synced together, so a crash of the machine in between may leave an
entry without its checkpoint, which then counts as damaged.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import dataclass

from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID
from entrepot_checkpoints.retention import remove_checkpoint
from entrepot_checkpoints.storage.chunks import SHARED_FOLDER
from entrepot_checkpoints.storage.directory import StorageDirectory, UnsyncedFolders, open_directory

from entrepot_policy.rules.match_target import Task
from entrepot_policy.rules.targets import Target
from entrepot_policy.state.lineage import ObjectRef

FORMAT_VERSION = 1
MARKER = "entrepot_catalog"
FOLDER = f"{SHARED_FOLDER}/catalog"


@dataclass(frozen=True)
class CatalogEntry:
    """One checkpoint of one object.

    Attributes:
        url: of the checkpoint.
        scope: of the object.
        ref: the object, in the generation that was saved.
        task: that made it.
        nbytes: of its payload.
        created: seconds since 1970.
        rule: that requested it, as file and line.
    """

    url: str
    scope: str
    ref: ObjectRef
    task: Task
    nbytes: int
    created: float
    rule: str

    def to_bytes(self) -> bytes:
        """Serialize the entry."""
        ref, task = self.ref, self.task
        fields = {
            MARKER: FORMAT_VERSION,
            "url": self.url,
            "scope": self.scope,
            "session": ref.session,
            "id": str(ref.id),
            "key": ref.key,
            "instance": ref.instance,
            "generation": ref.generation,
            "task": [task.orchestrator, task.pipeline, task.run, task.name],
            "nbytes": self.nbytes,
            "created": self.created,
            "rule": self.rule,
        }
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes, url: str) -> CatalogEntry:
        """Parse what :meth:`to_bytes` produced.

        Raises:
            VersionMismatch: it was written by a newer version.
            CorruptData: it is something else.
        """
        try:
            parsed = json.loads(data)
            version = int(parsed[MARKER])
            if version > FORMAT_VERSION:
                raise VersionMismatch(
                    f"{url} has catalog format {version}, but this installation reads up to {FORMAT_VERSION}: "
                    "upgrade entrepot here"
                )
            orchestrator, pipeline, run, name = parsed["task"]
            return cls(
                url=str(parsed["url"]),
                scope=str(parsed["scope"]),
                ref=ObjectRef(
                    str(parsed["session"]),
                    ObjectID(parsed["id"]),
                    str(parsed["key"]),
                    str(parsed["instance"]),
                    int(parsed["generation"]),
                ),
                task=Task(str(orchestrator), str(pipeline), str(run), str(name)),
                nbytes=int(parsed["nbytes"]),
                created=float(parsed["created"]),
                rule=str(parsed["rule"]),
            )
        except (KeyError, TypeError, ValueError, InvalidArgument) as error:
            raise CorruptData(f"{url} is not a catalog entry: {type(error).__name__}: {error}") from error


class Catalog:
    """The catalog at the base of a target. Thread-safe.

    Args:
        target: the target.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._storage = open_directory(target.base, target.options)

    def add(self, entry: CatalogEntry, *, counts_toward_keep: bool, unsynced: UnsyncedFolders) -> None:
        """Add an entry for a checkpoint unless it exists, and sync both.

        Args:
            entry: of the checkpoint.
            counts_toward_keep: whether it counts towards a rule's ``keep``.
            unsynced: directories of the checkpoint, as collected by ``save``.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable, InvalidArgument: it cannot be written.
        """
        file = f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        data = entry.to_bytes()
        if any(existing.url == entry.url for existing in self.find(entry.ref.id)):
            # Another process may have got this far and been killed before it synced this.
            if counts_toward_keep:
                self._storage.mark_unsynced(f"{_output_folder(entry)}/{file}", unsynced, folders=5)
            self._storage.mark_unsynced(f"{_object_folder(entry.ref.id)}/{file}", unsynced, folders=6)
        else:
            if counts_toward_keep:  # first: a checkpoint that can be found but is never pruned would stay forever
                self._storage.write(f"{_output_folder(entry)}/{file}", data, unsynced=unsynced)
            self._storage.write(f"{_object_folder(entry.ref.id)}/{file}", data, unsynced=unsynced)
        self._storage.sync_folders(unsynced)

    def find(self, oid: ObjectID) -> list[CatalogEntry]:
        """The checkpoints of an object, newest first; unreadable entries are skipped.

        Raises:
            AccessDenied, StoreUnavailable: the target cannot be read.
            VersionMismatch: the newest entry was written by a newer version, and no entry is readable.
        """
        names = sorted((file.name for file in self._storage.files(_object_folder(oid))), reverse=True)
        entries: list[CatalogEntry] = []
        version_error: VersionMismatch | None = None
        for name in names:
            try:
                entry = CatalogEntry.from_bytes(self._storage.read(name), f"{self._storage.url}/{name}")
            except (FileNotFoundError, CorruptData):
                continue  # pruned meanwhile, or written by a driver without atomic writes
            except VersionMismatch as error:
                version_error = version_error or error
                continue
            if entry.ref.id == oid:
                entries.append(entry)
        if version_error is not None and not entries:
            raise version_error
        return entries

    def prune(self, output_entry: CatalogEntry, keep: int) -> list[str]:
        """Remove the oldest checkpoints of an output until ``keep`` are left; the next sweep removes their chunks.

        Args:
            output_entry: a checkpoint of the output.
            keep: how many to keep.

        Returns:
            The URLs of the removed checkpoints.
        """
        names = sorted(file.name for file in self._storage.files(_output_folder(output_entry)))
        expired_names = names[: max(0, len(names) - keep)]
        if not expired_names:
            return []
        kept_urls = {entry.url for name in names[len(expired_names) :] if (entry := self._read(name)) is not None}
        removed: list[str] = []
        for name in expired_names:
            entry = self._read(name)
            if entry is None or entry.url in kept_urls:  # two processes added the same checkpoint
                self._storage.remove(name)
                continue
            root, checkpoint = self._open_checkpoint(entry.url).split()
            # The entry first, so that nobody tries to load a partially removed checkpoint.
            self._storage.remove(f"{_object_folder(entry.ref.id)}/{name.rpartition('/')[2]}")
            remove_checkpoint(root, checkpoint)
            self._storage.remove(name)
            removed.append(entry.url)
        return removed

    def _read(self, name: str) -> CatalogEntry | None:
        """Read an entry; None: removed by another process, or not an entry."""
        try:
            return CatalogEntry.from_bytes(self._storage.read(name), f"{self._storage.url}/{name}")
        except (FileNotFoundError, CorruptData):
            return None

    def _open_checkpoint(self, url: str) -> StorageDirectory:
        # Somebody may have edited the entry: never remove anything outside the target.
        if not url.startswith(self._storage.url + "/") or "/../" in url + "/":
            raise CorruptData(f"a catalog entry in {self._storage.url} refers to {url}, which is outside of it")
        return open_directory(url, self.target.options)


class Catalogs:
    """The catalogs of several targets, opened on demand."""

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self._targets = targets
        self._catalogs: dict[tuple[str, str], Catalog] = {}

    def reset(self) -> None:
        """Reopen all catalogs on next use: a forked child must not use its parent's connections."""
        self._catalogs = {}

    def for_target(self, target: Target) -> Catalog:
        """The catalog of a target."""
        key = (target.base, repr(sorted(target.options.items())))
        if key not in self._catalogs:
            self._catalogs[key] = Catalog(target)
        return self._catalogs[key]

    def find(self, oid: ObjectID) -> tuple[list[tuple[Catalog, CatalogEntry]], list[EntrepotError]]:
        """The checkpoints of an object under all targets, newest first; and the errors of targets that failed."""
        entries: list[tuple[Catalog, CatalogEntry]] = []
        errors: list[EntrepotError] = []
        searched: set[int] = set()
        for target in self._targets:
            try:
                catalog = self.for_target(target)
                if id(catalog) in searched:
                    continue
                searched.add(id(catalog))
                entries.extend((catalog, entry) for entry in catalog.find(oid))
            except EntrepotError as error:
                errors.append(error.with_traceback(None))  # its traceback refers to this frame, and so to the list
        return sorted(entries, key=lambda pair: pair[1].created, reverse=True), errors


def _object_folder(oid: ObjectID) -> str:
    text = str(oid)
    return f"{FOLDER}/objects/{text[:2]}/{text}"


def _output_folder(entry: CatalogEntry) -> str:
    """The directory of an output over all runs: its key does not contain the run. A random ID is an output of its
    own.
    """
    task = entry.task
    identity = "\0".join((entry.scope, task.orchestrator, task.pipeline, task.name, entry.ref.key or str(entry.ref.id)))
    return f"{FOLDER}/outputs/{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
