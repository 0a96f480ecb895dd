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

from entrepot_io.checkpoints.chunks import SHARED
from entrepot_io.checkpoints.keeping import remove_checkpoint
from entrepot_io.checkpoints.places import Place, Unsettled, open_place
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.subject import Task
from entrepot_io.policy.targets import Target

FORMAT_VERSION = 1
MARKER = "entrepot_catalog"
FOLDER = f"{SHARED}/catalog"


@dataclass(frozen=True)
class Entry:
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
        said = {
            MARKER: FORMAT_VERSION,
            "url": self.url,
            "scope": self.scope,
            "session": ref.session,
            "id": str(ref.id),
            "key": ref.key,
            "instance": ref.instance,
            "generation": ref.generation,
            "task": [task.host, task.pipeline, task.run, task.name],
            "nbytes": self.nbytes,
            "created": self.created,
            "rule": self.rule,
        }
        return json.dumps(said).encode()

    @classmethod
    def from_bytes(cls, data: bytes, url: str) -> Entry:
        """Parse what :meth:`to_bytes` produced.

        Raises:
            VersionMismatch: it was written by a newer version.
            CorruptData: it is something else.
        """
        try:
            said = json.loads(data)
            version = int(said[MARKER])
            if version > FORMAT_VERSION:
                raise VersionMismatch(
                    f"{url} has catalog format {version}, this installation reads up to {FORMAT_VERSION}: upgrade "
                    "entrepot here"
                )
            host, pipeline, run, name = said["task"]
            return cls(
                url=str(said["url"]),
                scope=str(said["scope"]),
                ref=ObjectRef(
                    str(said["session"]),
                    ObjectID(said["id"]),
                    str(said["key"]),
                    str(said["instance"]),
                    int(said["generation"]),
                ),
                task=Task(str(host), str(pipeline), str(run), str(name)),
                nbytes=int(said["nbytes"]),
                created=float(said["created"]),
                rule=str(said["rule"]),
            )
        except (KeyError, TypeError, ValueError, InvalidArgument) as error:
            raise CorruptData(f"{url} is no entry of a catalog: {type(error).__name__}: {error}") from error


class Catalog:
    """The catalog at the base of a target. Thread-safe.

    Args:
        target: the target.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._place = open_place(target.base, target.options)

    def add(self, entry: Entry, *, kept: bool, unsettled: Unsettled) -> None:
        """Add an entry for a checkpoint unless it exists, and sync both.

        Args:
            entry: of the checkpoint.
            kept: whether it counts towards a rule's ``keep``.
            unsettled: directories of the checkpoint, as collected by ``save``.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable, InvalidArgument: it cannot be written.
        """
        file = f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        data = entry.to_bytes()
        if any(known.url == entry.url for known in self.find(entry.ref.id)):
            # Another process may have got this far and been killed before it synced this.
            if kept:
                self._place.unsettle(f"{_output_folder(entry)}/{file}", unsettled, folders=5)
            self._place.unsettle(f"{_object_folder(entry.ref.id)}/{file}", unsettled, folders=6)
        else:
            if kept:  # first: a checkpoint that can be found but is never pruned would stay forever
                self._place.write(f"{_output_folder(entry)}/{file}", data, unsettled=unsettled)
            self._place.write(f"{_object_folder(entry.ref.id)}/{file}", data, unsettled=unsettled)
        self._place.settle(unsettled)

    def find(self, oid: ObjectID) -> list[Entry]:
        """The checkpoints of an object, newest first; unreadable entries are skipped.

        Raises:
            AccessDenied, StoreUnavailable: the target cannot be read.
            VersionMismatch: the newest entry was written by a newer version, and no entry is readable.
        """
        names = sorted((one.name for one in self._place.files(_object_folder(oid))), reverse=True)
        found: list[Entry] = []
        newer: VersionMismatch | None = None
        for name in names:
            try:
                entry = Entry.from_bytes(self._place.read(name), f"{self._place.url}/{name}")
            except (FileNotFoundError, CorruptData):
                continue  # pruned meanwhile, or written by a driver without atomic writes
            except VersionMismatch as error:
                newer = newer or error
                continue
            if entry.ref.id == oid:
                found.append(entry)
        if newer is not None and not found:
            raise newer
        return found

    def prune(self, like: Entry, keep: int) -> list[str]:
        """Remove the oldest checkpoints of an output until ``keep`` are left; the next sweep removes their chunks.

        Args:
            like: a checkpoint of the output.
            keep: how many to keep.

        Returns:
            The URLs of the removed checkpoints.
        """
        names = sorted(one.name for one in self._place.files(_output_folder(like)))
        leaving = names[: max(0, len(names) - keep)]
        if not leaving:
            return []
        staying = {entry.url for name in names[len(leaving) :] if (entry := self._read(name)) is not None}
        removed: list[str] = []
        for name in leaving:
            entry = self._read(name)
            if entry is None or entry.url in staying:  # two processes added the same checkpoint
                self._place.remove(name)
                continue
            root, checkpoint = self._open(entry.url).split()
            # The entry first, so that nobody tries to load a partially removed checkpoint.
            self._place.remove(f"{_object_folder(entry.ref.id)}/{name.rpartition('/')[2]}")
            remove_checkpoint(root, checkpoint)
            self._place.remove(name)
            removed.append(entry.url)
        return removed

    def _read(self, name: str) -> Entry | None:
        """Read an entry; None: removed by another process, or not an entry."""
        try:
            return Entry.from_bytes(self._place.read(name), f"{self._place.url}/{name}")
        except (FileNotFoundError, CorruptData):
            return None

    def _open(self, url: str) -> Place:
        # Somebody may have edited the entry: never remove anything outside the target.
        if not url.startswith(self._place.url + "/") or "/../" in url + "/":
            raise CorruptData(f"an entry of the catalog of {self._place.url} names {url}, which is not below it")
        return open_place(url, self.target.options)


class Catalogs:
    """The catalogs of several targets, opened on demand."""

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self._targets = targets
        self._open: dict[tuple[str, str], Catalog] = {}

    def forget(self) -> None:
        """Reopen all catalogs on next use: a forked child must not use its parent's connections."""
        self._open = {}

    def of(self, target: Target) -> Catalog:
        """The catalog of a target."""
        key = (target.base, repr(sorted(target.options.items())))
        if key not in self._open:
            self._open[key] = Catalog(target)
        return self._open[key]

    def find(self, oid: ObjectID) -> tuple[list[tuple[Catalog, Entry]], list[EntrepotError]]:
        """The checkpoints of an object under all targets, newest first; and the errors of targets that failed."""
        found: list[tuple[Catalog, Entry]] = []
        failed: list[EntrepotError] = []
        asked: set[int] = set()
        for target in self._targets:
            try:
                catalog = self.of(target)
                if id(catalog) in asked:
                    continue
                asked.add(id(catalog))
                found.extend((catalog, entry) for entry in catalog.find(oid))
            except EntrepotError as error:
                failed.append(error.with_traceback(None))  # its traceback refers to this frame, and so to the list
        return sorted(found, key=lambda one: one[1].created, reverse=True), failed


def _object_folder(oid: ObjectID) -> str:
    text = str(oid)
    return f"{FOLDER}/objects/{text[:2]}/{text}"


def _output_folder(entry: Entry) -> str:
    """The directory of an output over all runs: its key does not contain the run. A random ID is an output of its
    own.
    """
    task = entry.task
    said = "\0".join((entry.scope, task.host, task.pipeline, task.name, entry.ref.key or str(entry.ref.id)))
    return f"{FOLDER}/outputs/{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
