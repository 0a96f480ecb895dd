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

from entrepot import parts
from entrepot.durable import DECLARATION_KEY
from entrepot.errors import CorruptData, InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

from entrepot_io.checkpoints.behind import Behind
from entrepot_io.checkpoints.chunks import SHARED
from entrepot_io.checkpoints.keeping import remove_checkpoint
from entrepot_io.checkpoints.loading import load_manifest, read_manifest
from entrepot_io.checkpoints.manifest_text import MANIFEST
from entrepot_io.checkpoints.places import Place, open_place
from entrepot_io.checkpoints.progress import Counter
from entrepot_io.checkpoints.request import Wanted
from entrepot_io.checkpoints.saving import save_wanted

if TYPE_CHECKING:
    from entrepot import Durable, Store

NAMES = f"{SHARED}/names"
_FILE_NAME_MOST = 200

_lock = threading.Lock()
_tiers: dict[tuple[str, str], DurableTier] = {}  # guarded by _lock; key: URL and options


def tier(durable: Durable) -> DurableTier:
    """This process's tier at a URL, shared by its stores and sessions.

    Raises:
        InvalidArgument, AccessDenied, StoreUnavailable: the URL cannot be used.
    """
    key = (durable.url, repr(sorted((durable.storage_options or {}).items())))
    with _lock:
        known = _tiers.get(key)
        if known is None:
            known = _tiers[key] = DurableTier(open_place(durable.url, durable.storage_options))
        return known


def flush_session(store: Store) -> int:
    """Write every object of a durable session that its tier lacks; returns how many of its objects the tier then holds.

    Raises:
        Whatever ``save`` raises.
    """
    durable = store.durable
    if durable is None:
        raise InvalidArgument(f"{store!r} is not durable: there is nowhere to flush it to")
    place = tier(durable)
    place.flush(None)
    count = 0
    for one in parts.listed(store):
        if one.id == store.derive(DECLARATION_KEY) or not (durable.covers("") or any(map(durable.covers, one.names))):
            continue
        try:
            place.save(store, one.id)
        except ObjectNotFound:
            continue  # deleted meanwhile
        for name in one.names:
            if durable.covers(name):
                place.bind(store, name, one.id)
        count += 1
    return count


class DurableTier:
    """Objects and names at one URL. Thread-safe."""

    def __init__(self, root: Place) -> None:
        self._root = root
        self._behind = Behind(self.save, root.url)

    # --- objects

    def save(self, store: Store, oid: ObjectID) -> None:
        """Write an object synchronously, unless it exists already."""
        listed = replace(parts.look_up(store, oid), names=())
        asked = Wanted("object", store, [oid], [listed], True)
        save_wanted(asked, self._root, str(oid), Counter(None, listed.nbytes, 1), keep_lives=True)

    def later(self, store: Store, oid: ObjectID) -> None:
        """Write an object in the background."""
        self._behind.add(store, oid)

    def flush(self, timeout: float | None) -> None:
        """Wait for background writes."""
        self._behind.flush(timeout)

    def holds(self, oid: ObjectID) -> bool:
        """Whether the tier holds the object."""
        return (self._root / str(oid)).size(MANIFEST) is not None

    def recall(self, store: Store, oid: ObjectID, life: tuple[str, int] | None) -> bool:
        """Reload an object into the store; see ``Store.recall``."""
        try:
            manifest = read_manifest(self._root, str(oid))
        except ObjectNotFound:
            return False
        if manifest.roots != (oid,):
            raise CorruptData(f"{self._root.url}/{oid} holds another object than its name says")
        (saved,) = manifest.objects
        if life is not None and life != (manifest.instance, saved.generation) and life not in saved.lives:
            return False
        try:
            load_manifest(store, replace(manifest, objects=(replace(saved, names=()),)), self._root, str(oid))
        except ObjectExists as error:
            raise ObjectLost(f"object {oid} was replaced since: the durable tier has another value of it") from error
        return True

    def forget(self, oid: ObjectID) -> bool:
        """Remove an object and return whether it existed; its chunks are removed by the next prune."""
        self._behind.discard(oid)
        return self.holds(oid) and remove_checkpoint(self._root, str(oid))

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
            said = json.loads(self._root.read(file))
            if said["name"] != name:
                raise ValueError(f"it is of the name {said['name']!r}")
            return ObjectID(said["id"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptData(f"{self._root.url}/{file} does not say what {name!r} means: {error}") from error


def _name_file(store: Store, name: str) -> str:
    return f"{NAMES}/{_file_name(store.scope)}/={_file_name(store.session_name)}/={_file_name(name)}"


def _file_name(text: str) -> str:
    """Encode a string as one file name valid on any file system; long ones by their digest."""
    quoted = quote(text, safe="").replace(".", "%2E")
    if len(quoted) <= _FILE_NAME_MOST:
        return quoted
    return "%" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
