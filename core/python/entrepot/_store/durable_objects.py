"""Objects that are also kept at a URL, through a tier provided by another package."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot._client.arguments import AnyID, to_id
from entrepot._client.info import PutResult
from entrepot._collections.members import members_of
from entrepot._store.objects import AnyStore, DirectObjects, ObjectAccess
from entrepot.codec import CopyMode
from entrepot.durable import Durable
from entrepot.errors import EntrepotError, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._checkpoints.backend import DurableBackend


class DurableObjects(ObjectAccess):
    """Writes what is put to a durable tier too, and restores from there what the store lacks.

    Args:
        direct: the objects in the store itself.
        durable: the session's declaration.
        backend: the tier that it names.

    All attributes are set once.
    """

    def __init__(self, direct: DirectObjects, durable: Durable, backend: DurableBackend) -> None:
        self._direct = direct
        self._durable = durable
        self._backend = backend

    @property
    def durable(self) -> Durable | None:
        return self._durable

    # --- writing

    def put_item(self, store: AnyStore, item: _core.Item) -> tuple[int, int, bool]:
        result = self._direct.put_item(store, item)
        self._write_if_covered(store, ObjectID(item[0]), item[4])
        return result

    def put_items(self, store: AnyStore, items: list[_core.Item]) -> None:
        self._direct.put_items(store, items)
        for item in items:
            self._write_if_covered(store, ObjectID(item[0]), "")

    def put_new(self, store: AnyStore, values: list[Any]) -> list[ObjectID]:
        oids = self._direct.put_new(store, values)
        for oid in oids:
            self._write_if_covered(store, oid, "")
        return oids

    def seal_blob(
        self, store: AnyStore, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes
    ) -> PutResult:
        result = self._direct.seal_blob(store, raw, oid, fresh, name, tree)
        self._write_if_covered(store, oid, name)
        return result

    def seal_built(self, store: AnyStore, builder: _core.ObjectBuilder, item: _core.Item) -> tuple[int, int, bool]:
        result = self._direct.seal_built(store, builder, item)
        self._write_if_covered(store, ObjectID(item[0]), item[4])
        return result

    def set_name(self, store: AnyStore, name: str, oid: AnyID, replace: bool) -> None:
        self._direct.set_name(store, name, oid, replace)
        self._write_if_covered(store, to_id(oid), name)

    def make_durable(self, store: AnyStore, oid: AnyID) -> None:
        self._write_durably(store, to_id(oid), "")

    def _write_if_covered(self, store: AnyStore, oid: ObjectID, name: str) -> None:
        if self._durable.covers(name):
            self._write_durably(store, oid, name)

    def _write_durably(self, store: AnyStore, oid: ObjectID, name: str) -> None:
        try:
            if self._durable.mode == "behind":
                self._backend.save_later(store, oid)
            else:
                self._backend.save(store, oid)
            if name:
                self._backend.bind(store, name, oid)
        except EntrepotError as error:
            raise type(error)(
                f"object {oid} is in the store, but could not be made durable at {self._durable.url}: {error}. "
                "Its session was declared durable there (ENTREPOT_DURABLE, connect(durable=)), for all processes; if "
                "that was a mistake, declare it once more with a URL that can be written"
            ) from error

    # --- reading

    def get_versioned(
        self, store: AnyStore, oid: AnyID, timeout: float | None, copy: CopyMode, remote: bool = True
    ) -> tuple[Any, int]:
        try:
            return self._direct.get_versioned(store, oid, copy=copy, remote=remote)
        except (ObjectNotFound, ObjectLost):
            if not self.recall(store, oid, None) and not timeout and timeout is not None:
                raise
        return self._direct.get_versioned(store, oid, timeout, copy, remote)

    def get_many(
        self, store: AnyStore, oids: list[AnyID], timeout: float | None, copy: CopyMode, remote: bool = True
    ) -> list[Any]:
        try:
            return self._direct.get_many(store, oids, copy=copy, remote=remote)
        except (ObjectNotFound, ObjectLost):
            for oid in oids:
                if not self._direct.exists(oid):
                    self.recall(store, oid, None)
        return self._direct.get_many(store, oids, timeout, copy, remote)

    def resolve(self, store: AnyStore, name: str, timeout: float | None, remote: bool = True) -> ObjectID:
        try:
            return self._direct.resolve(store, name, remote=remote)
        except (ObjectNotFound, ObjectLost):
            oid = self._backend.lookup(store, name)
            if oid is not None and (self._direct.exists(oid) or self.recall(store, oid, None)):
                with suppress(ObjectExists):  # bound by someone else in the meantime: the current binding counts
                    self._direct.set_name(store, name, oid)
            elif timeout == 0:
                raise
        return self._direct.resolve(store, name, timeout, remote)

    def exists(self, oid: AnyID) -> bool:
        return self._direct.exists(oid) or self._backend.contains(to_id(oid))

    def generation_of(self, store: AnyStore, oid: AnyID) -> int:
        try:
            return self._direct.generation_of(store, oid)
        except ObjectNotFound:
            if not self.recall(store, oid, None):
                raise
        return self._direct.generation_of(store, oid)

    def recall(self, store: AnyStore, oid: AnyID, life: tuple[str, int] | None) -> bool:
        return self._backend.recall(store, to_id(oid), life)

    # --- deleting

    def delete(self, oid: AnyID, members: bool) -> bool:
        member_ids = members_of(self._direct.session.raw(), to_id(oid).binary) if members else []
        existed = self._direct.delete(oid, members)
        existed = self._backend.delete(to_id(oid)) or existed
        for member_id in member_ids:
            self._backend.delete(ObjectID(member_id))
        return existed

    def unset_name(self, store: AnyStore, name: str) -> None:
        existed = self._backend.unbind(store, name)
        try:
            self._direct.unset_name(store, name)
        except ObjectNotFound:
            if not existed:
                raise

    def flush(self, timeout: float | None) -> None:
        self._backend.flush(timeout)
