"""The durable tier: each object is a checkpoint of its own, named by its ID, under one root.

    URL/<ID>/manifest.json                       the object: small ones inline, large ones as a list of chunks
    URL/.entrepot/chunks/                        as for all checkpoints
    URL/.entrepot/names/<scope>/=<session>/...   what a name is bound to

An object that is reloaded into a new store gets a new generation there. Its manifest lists the earlier (instance,
generation) pairs that had the same content, so that a reference written before a reboot still finds exactly its value,
and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from entrepot import raw_objects
from entrepot.durable import DECLARATION_KEY
from entrepot.errors import CorruptData, InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

from entrepot_checkpoints.manifests.manifest_codec import MANIFEST_NAME
from entrepot_checkpoints.progress import ProgressCounter
from entrepot_checkpoints.reader import load_manifest, read_manifest
from entrepot_checkpoints.retention import remove_checkpoint
from entrepot_checkpoints.save_request import SaveRequest
from entrepot_checkpoints.storage.chunks import NAMES_FOLDER, probe_name
from entrepot_checkpoints.storage.directory import StorageDirectory, open_directory
from entrepot_checkpoints.write_behind import WriteBehindQueue
from entrepot_checkpoints.writer import write_checkpoint

if TYPE_CHECKING:
    from entrepot import Durable, Store

_MAX_FILE_NAME = 200

_lock = threading.Lock()
_tiers: dict[tuple[str, str], DurableTier] = {}  # guarded by _lock; key: URL and options


def tier_for(durable: Durable) -> DurableTier:
    """This process's tier at a URL, shared by its stores and sessions.

    Raises:
        InvalidArgument, AccessDenied, StoreUnavailable: the URL cannot be used.
    """
    key = (durable.url, repr(sorted((durable.storage_options or {}).items())))
    with _lock:
        existing = _tiers.get(key)
        if existing is None:
            existing = _tiers[key] = DurableTier(open_directory(durable.url, durable.storage_options))
        return existing


def flush_session(store: Store) -> int:
    """Write every object of a durable session that its tier lacks; returns how many of its objects the tier then holds.

    Raises:
        Whatever ``save`` raises.
    """
    durable = store.durable
    if durable is None:
        raise InvalidArgument(f"{store!r} is not durable: it has no target to flush to")
    backend = tier_for(durable)
    backend.flush(None)
    count = 0
    for entry in raw_objects.iter_entries(store):
        if entry.id == store.derive(DECLARATION_KEY) or not (
            durable.covers("") or any(map(durable.covers, entry.names))
        ):
            continue
        try:
            backend.save(store, entry.id)
        except ObjectNotFound:
            continue  # deleted meanwhile
        for name in entry.names:
            if durable.covers(name):
                backend.bind(store, name, entry.id)
        count += 1
    return count


class DurableTier:
    """Objects and names at one URL. Thread-safe."""

    def __init__(self, root: StorageDirectory) -> None:
        self._root = root
        self._write_queue = WriteBehindQueue(self.save, root.url)

    def check(self) -> None:
        """Raise if it is a local folder that cannot be written, by trying it; see ``DurableBackend``.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable: as for any write.
        """
        if self._root.local:
            self._root.probe(probe_name())

    # --- objects

    def save(self, store: Store, oid: ObjectID) -> None:
        """Write an object synchronously, unless it exists already."""
        entry = replace(raw_objects.entry_of(store, oid), names=())
        request = SaveRequest("object", store, [oid], [entry], True)
        write_checkpoint(
            request, self._root, str(oid), ProgressCounter(None, entry.nbytes, 1), keep_earlier_generations=True
        )

    def save_later(self, store: Store, oid: ObjectID) -> None:
        """Write an object in the background."""
        self._write_queue.add(store, oid)

    def flush(self, timeout: float | None) -> None:
        """Wait for background writes."""
        self._write_queue.flush(timeout)

    def contains(self, oid: ObjectID) -> bool:
        """Whether the tier holds the object."""
        return (self._root / str(oid)).size(MANIFEST_NAME) is not None

    def recall(self, store: Store, oid: ObjectID, instance_generation: tuple[str, int] | None) -> bool:
        """Reload an object into the store; see ``Store.recall``."""
        try:
            manifest = read_manifest(self._root, str(oid))
        except ObjectNotFound:
            return False
        if manifest.roots != (oid,):
            raise CorruptData(f"{self._root.url}/{oid} holds a different object than its name says")
        (saved,) = manifest.objects
        if (
            instance_generation is not None
            and instance_generation != (manifest.instance, saved.generation)
            and instance_generation not in saved.earlier_generations
        ):
            return False
        try:
            load_manifest(store, replace(manifest, objects=(replace(saved, names=()),)), self._root, str(oid))
        except ObjectExists as error:
            raise ObjectLost(f"object {oid} has been replaced: the durable tier has a different value") from error
        return True

    def delete(self, oid: ObjectID) -> bool:
        """Remove an object and return whether it existed; its chunks are removed by the next prune."""
        self._write_queue.cancel(oid)
        return self.contains(oid) and remove_checkpoint(self._root, str(oid))

    # --- names

    def bind(self, store: Store, name: str, oid: ObjectID) -> None:
        """Store what a name is bound to, unless it is stored already."""
        if self.lookup(store, name) != oid:
            self._root.write(_name_file(store, name), json.dumps({"name": name, "id": str(oid)}).encode())

    def unbind(self, store: Store, name: str) -> bool:
        """Remove a name and return whether it existed."""
        return self._root.remove(_name_file(store, name))

    def lookup(self, store: Store, name: str) -> ObjectID | None:
        """The ID that a name is bound to; None if it is not bound."""
        file = _name_file(store, name)
        try:
            record = json.loads(self._root.read(file))
            if record["name"] != name:
                raise ValueError(f"it belongs to the name {record['name']!r}")
            return ObjectID(record["id"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptData(f"{self._root.url}/{file} is not a valid entry for the name {name!r}: {error}") from error


def _name_file(store: Store, name: str) -> str:
    return f"{NAMES_FOLDER}/{_file_name(store.scope)}/={_file_name(store.session_name)}/={_file_name(name)}"


def _file_name(text: str) -> str:
    """Encode a string as one file name valid on any file system; long ones by their digest."""
    quoted = quote(text, safe="").replace(".", "%2E")
    if len(quoted) <= _MAX_FILE_NAME:
        return quoted
    return "%" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
