"""Durable stores: a ``Store`` whose session is also kept at a URL, through a tier provided by another package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from entrepot._checkpoints.store_methods import checkpoint_function
from entrepot._client.arguments import AnyID, to_id
from entrepot._client.info import PutResult
from entrepot._client.store import Store
from entrepot._collections.members import members_of
from entrepot.codec import CopyMode
from entrepot.durable import DECLARATION_KEY, Durable, durable_config
from entrepot.errors import EntrepotError, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core


class DurableBackend(Protocol):
    """Storage for objects outside the store; implemented by ``entrepot_checkpoints.durable_tier``."""

    def save(self, store: Store, oid: ObjectID) -> None:
        """Write an object; return once it is there."""

    def save_later(self, store: Store, oid: ObjectID) -> None:
        """Write an object in the background."""

    def flush(self, timeout: float | None) -> None:
        """Wait until all pending writes are done; raise the error of one that failed."""

    def contains(self, oid: ObjectID) -> bool:
        """Return whether the object is there."""
        ...

    def recall(self, store: Store, oid: ObjectID, life: tuple[str, int] | None) -> bool:
        """Restore it to the store; return whether it was there. A given life (instance, generation) must match."""
        ...

    def delete(self, oid: ObjectID) -> bool:
        """Remove it; return whether it was there."""
        ...

    def bind(self, store: Store, name: str, oid: ObjectID) -> None:
        """Record what a name is bound to."""

    def unbind(self, store: Store, name: str) -> bool:
        """Remove a name; return whether it was there."""
        ...

    def lookup(self, store: Store, name: str) -> ObjectID | None:
        """Return the ID that a name is bound to in the tier; None: it has no such name."""
        ...


class DurableStore(Store):
    """A :class:`Store` that also writes what is put to a URL, and restores from there what the store lacks."""

    _durable: Durable
    _backend: DurableBackend

    @classmethod
    def wrap(cls, store: Store, durable: Durable, *, declare: bool) -> DurableStore:
        """Make a durable store out of one that was just opened.

        Args:
            store: is closed; the new store inherits its connection.
            durable: the session's declaration.
            declare: whether to record the declaration in the session, for other processes.
        """
        durable_store = cls.__new__(cls)
        durable_store.__dict__.update(store.__dict__)
        store._closed = True
        durable_store._durable = durable
        try:
            durable_store._backend = checkpoint_function("tier")(durable)
            if (
                declare
                and durable_config(durable_store._client, durable_store._scope, durable_store._session) != durable
            ):
                item = durable_store._item(
                    durable.to_bytes(), durable_store.derive(DECLARATION_KEY), False, DECLARATION_KEY, True
                )
                Store._put_item(durable_store, item)
        except BaseException:
            Store.close(durable_store)
            raise
        return durable_store

    # --- writing

    def put_many(self, values: Iterable[Any], *, ids: Sequence[AnyID] | None = None) -> list[ObjectID]:
        oids = super().put_many(values, ids=ids)
        for oid in oids:
            self._write_if_covered(oid, "")
        return oids

    def _put_item(self, item: _core.Item) -> tuple[int, int, bool]:
        result = super()._put_item(item)
        self._write_if_covered(ObjectID(item[0]), item[4])
        return result

    def _seal_blob(self, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes) -> PutResult:
        result = super()._seal_blob(raw, oid, fresh, name, tree)
        self._write_if_covered(oid, name)
        return result

    def set_name(self, name: str, oid: AnyID, *, replace: bool = False) -> None:
        super().set_name(name, oid, replace=replace)
        self._write_if_covered(to_id(oid), name)

    def make_durable(self, oid: AnyID) -> None:
        self._write_durably(to_id(oid), "")

    def _write_if_covered(self, oid: ObjectID, name: str) -> None:
        if self._durable.covers(name):
            self._write_durably(oid, name)

    def _write_durably(self, oid: ObjectID, name: str) -> None:
        try:
            if self._durable.mode == "behind":
                self._backend.save_later(self, oid)
            else:
                self._backend.save(self, oid)
            if name:
                self._backend.bind(self, name, oid)
        except EntrepotError as error:
            raise type(error)(
                f"object {oid} is in the store, but could not be made durable at {self._durable.url}: {error}"
            ) from error

    # --- reading

    def get_versioned(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> tuple[Any, int]:
        try:
            return super().get_versioned(oid, copy=copy)
        except (ObjectNotFound, ObjectLost):
            if not self.recall(oid) and not timeout and timeout is not None:
                raise
        return super().get_versioned(oid, timeout=timeout, copy=copy)

    def get_many(self, oids: Iterable[AnyID], *, timeout: float | None = 0, copy: CopyMode = "never") -> list[Any]:
        oids = list(oids)
        try:
            return super().get_many(oids, copy=copy)
        except (ObjectNotFound, ObjectLost):
            for oid in oids:
                if not super().exists(oid):
                    self.recall(oid)
        return super().get_many(oids, timeout=timeout, copy=copy)

    def resolve(self, name: str, *, timeout: float | None = 0) -> ObjectID:
        try:
            return super().resolve(name)
        except ObjectNotFound:
            oid = self._backend.lookup(self, name)
            if oid is not None and (super().exists(oid) or self.recall(oid)):
                with suppress(ObjectExists):  # bound by someone else in the meantime: the current binding counts
                    Store.set_name(self, name, oid)
            elif timeout == 0:
                raise
        return super().resolve(name, timeout=timeout)

    def exists(self, oid: AnyID) -> bool:
        return super().exists(oid) or self._backend.contains(to_id(oid))

    def generation_of(self, oid: AnyID) -> int:
        try:
            return super().generation_of(oid)
        except ObjectNotFound:
            if not self.recall(oid):
                raise
        return super().generation_of(oid)

    def recall(self, oid: AnyID, *, life: tuple[str, int] | None = None) -> bool:
        return self._backend.recall(self, to_id(oid), life)

    # --- deleting

    def delete(self, oid: AnyID, *, members: bool = True) -> bool:
        member_ids = members_of(self._raw(), to_id(oid).binary) if members else []
        existed = super().delete(oid, members=members)
        existed = self._backend.delete(to_id(oid)) or existed
        for member_id in member_ids:
            self._backend.delete(ObjectID(member_id))
        return existed

    def unset_name(self, name: str) -> None:
        existed = self._backend.unbind(self, name)
        try:
            super().unset_name(name)
        except ObjectNotFound:
            if not existed:
                raise

    # --- the store

    def session(
        self,
        name: str,
        *,
        ttl: float | None = None,
        limit_bytes: int | None = None,
        delete_consumed: bool | None = None,
    ) -> Store:
        opened = super().session(name, ttl=ttl, limit_bytes=limit_bytes, delete_consumed=delete_consumed)
        if isinstance(opened, DurableStore):
            return opened  # it has a declaration of its own
        return DurableStore.wrap(opened, self._durable, declare=True)

    @property
    def durable(self) -> Durable | None:
        return self._durable

    def flush_durable(self, timeout: float | None = None) -> None:
        self._backend.flush(timeout)

    def close(self) -> None:
        if self._closed:
            return
        try:
            self._backend.flush(None)
        finally:
            super().close()

    def __reduce__(self) -> Any:
        from functools import partial

        from entrepot._client.connection import connect

        reconnect = partial(
            connect,
            self._address,
            session=self._session,
            scope=self._scope,
            durable=self._durable,
            **self._pickle_arguments(),
        )
        return (reconnect, ())
