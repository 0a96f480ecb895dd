"""Encoded files as objects of the store: each is made once, for all programs and all mounts of the host.

They lie in the session ``entrepot.views`` of the scope ``entrepot`` and are *dead* in the sense of eviction: readable
while there is room, the first to go when there is none, never written to disk. An entry's name has the ID and the
generation of its object, so one that belongs to former content is never found; it is deleted when that is noticed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectLost, ObjectNotFound, StoreFull
from entrepot_io import connections
from entrepot_io.filesystem.contents import stored_bytes
from entrepot_io.filesystem.sealing import BYTES_TREE

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store
    from entrepot.ids import ObjectID

SCOPE, SESSION = "entrepot", "entrepot.views"
TTL_SECONDS = 3600.0
_WAIT_SECONDS = 5.0  # for memory; a file for which there is none is kept by the process of the mount
_FULL_SECONDS = 60.0  # for how long nobody waits again after that
_CONSUMER = "encoded"
_log = logging.getLogger("entrepot.mount")


@dataclass(frozen=True, slots=True)
class ViewKey:
    """Names an encoded file.

    Attributes:
        instance: the store.
        oid, generation: the object and its version.
        suffix: the format.
    """

    instance: str
    oid: ObjectID
    generation: int
    suffix: str

    @property
    def name(self) -> str:
        """Of the object that holds the file."""
        return f"{self.instance}:{self.oid}:{self.generation}{self.suffix}"


class ViewCache:
    """The encoded files, as one mount sees them. Thread-safe.

    Args:
        address: of the store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._encoding: dict[ViewKey, threading.Lock] = {}  # guarded by _lock: files that are being made
        self._made: set[ViewKey] = set()  # guarded by _lock: files that this mount has found or made
        self._full_until = 0.0  # monotonic; replaced in one step

    def get(self, key: ViewKey, encode: Callable[[], memoryview]) -> memoryview:
        """The file, made by ``encode`` if there is none; in shared memory if there is room for it.

        Raises:
            StoreUnavailable: the store cannot be reached.
            Anything that ``encode`` raises.
        """
        with self._lock:
            encoding = self._encoding.setdefault(key, threading.Lock())
        try:
            with encoding:
                store = self._session()
                view = _find(store, key)
                if view is None:
                    view = self._put(store, key, encode())
        finally:
            with self._lock:
                self._encoding.pop(key, None)
        with self._lock:
            self._made.add(key)
        return view

    def delete_stale(self, store: Store) -> None:
        """Delete files of objects that were replaced or deleted.

        Args:
            store: any session of the store.
        """
        with self._lock:
            made = list(self._made)
        for key in made:
            if key.instance == store.instance_id and raw_objects.generation_of(store, key.oid) == key.generation:
                continue
            if key.instance == store.instance_id:
                session = self._session()
                session.delete(_id_of(session, key))
            with self._lock:
                self._made.discard(key)

    def _put(self, store: Store, key: ViewKey, data: memoryview) -> memoryview:
        oid = _id_of(store, key)
        wait = 0 if time.monotonic() < self._full_until else _WAIT_SECONDS
        try:
            if data.nbytes <= raw_objects.SMALL_BYTES:
                store.put(bytes(data), id=oid, name=key.name, replace=True, consumers=1)
            else:
                with raw_objects.RawObjectWriter(store, [data.nbytes], wait_seconds=wait) as writer:
                    writer.buffers[0][:] = data
                    writer.seal(oid, BYTES_TREE, name=key.name, replace=True, consumers=1)
            view = _find(store, key)  # pinned first, because it may be dropped as soon as it is marked
        except StoreFull as error:
            self._full_until = time.monotonic() + _FULL_SECONDS
            _log.info("%s is not kept for other readers, because the store is full: %s", key.name, error)
            return data
        except EntrepotError as error:
            _log.warning("%s cannot be kept for other readers: %s", key.name, error)
            return data
        return data if view is None else view

    def _session(self) -> Store:
        return connections.session_store(self._address, SCOPE, SESSION, TTL_SECONDS)


def _id_of(store: Store, key: ViewKey) -> ObjectID:
    return store.derive(f"entrepot.view:{key.name}")


def _find(store: Store, key: ViewKey) -> memoryview | None:
    oid = _id_of(store, key)
    try:
        info: ObjectInfo = store.info(oid)
        view = stored_bytes(store, info, key.name)
    except (ObjectNotFound, ObjectLost):
        return None
    if not info.dead:  # whoever made it died before this
        store.consumed(oid, _CONSUMER)
    return view
