"""Durable stores: a ``Store`` whose session is also kept at a URL, through a tier provided by another package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from entrepot._arguments import AnyID, to_id
from entrepot._collection_members import members_of
from entrepot._info import Receipt
from entrepot._store import Store
from entrepot._store_checkpoints import service
from entrepot.codec import CopyMode
from entrepot.durable import DECLARATION_KEY, Durable, declared
from entrepot.errors import EntrepotError, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core


class Tier(Protocol):
    """Storage for objects outside the store; implemented by ``entrepot_io.checkpoints.durable``."""

    def save(self, store: Store, oid: ObjectID) -> None:
        """Write an object; return once it is there."""

    def later(self, store: Store, oid: ObjectID) -> None:
        """Write an object in the background."""

    def flush(self, timeout: float | None) -> None:
        """Wait until all pending writes are done; raise the error of one that failed."""

    def holds(self, oid: ObjectID) -> bool:
        """Return whether the object is there."""
        ...

    def recall(self, store: Store, oid: ObjectID, life: tuple[str, int] | None) -> bool:
        """Restore it to the store; return whether it was there. A given life (instance, generation) must match."""
        ...

    def forget(self, oid: ObjectID) -> bool:
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
    _tier: Tier

    @classmethod
    def over(cls, store: Store, durable: Durable, *, declare: bool) -> DurableStore:
        """Make a durable store out of one that was just opened.

        Args:
            store: is closed; the new store inherits its connection.
            durable: the session's declaration.
            declare: whether to record the declaration in the session, for other processes.
        """
        made = cls.__new__(cls)
        made.__dict__.update(store.__dict__)
        store._closed = True
        made._durable = durable
        try:
            made._tier = service("tier")(durable)
            if declare and declared(made._client, made._scope, made._session) != durable:
                item = made._item(durable.to_bytes(), made.derive(DECLARATION_KEY), False, DECLARATION_KEY, True)
                Store._put_item(made, item)
        except BaseException:
            Store.close(made)
            raise
        return made

    # --- writing

    def put_many(self, values: Iterable[Any], *, ids: Sequence[AnyID] | None = None) -> list[ObjectID]:
        done = super().put_many(values, ids=ids)
        for oid in done:
            self._written(oid, "")
        return done

    def _put_item(self, item: _core.Item) -> tuple[int, int, bool]:
        done = super()._put_item(item)
        self._written(ObjectID(item[0]), item[4])
        return done

    def _seal_blob(self, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes) -> Receipt:
        done = super()._seal_blob(raw, oid, fresh, name, tree)
        self._written(oid, name)
        return done

    def set_name(self, name: str, oid: AnyID, *, replace: bool = False) -> None:
        super().set_name(name, oid, replace=replace)
        self._written(to_id(oid), name)

    def make_durable(self, oid: AnyID) -> None:
        self._write(to_id(oid), "")

    def _written(self, oid: ObjectID, name: str) -> None:
        if self._durable.covers(name):
            self._write(oid, name)

    def _write(self, oid: ObjectID, name: str) -> None:
        try:
            if self._durable.mode == "behind":
                self._tier.later(self, oid)
            else:
                self._tier.save(self, oid)
            if name:
                self._tier.bind(self, name, oid)
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
            oid = self._tier.lookup(self, name)
            if oid is not None and (super().exists(oid) or self.recall(oid)):
                with suppress(ObjectExists):  # bound by someone else in the meantime: the current binding counts
                    Store.set_name(self, name, oid)
            elif timeout == 0:
                raise
        return super().resolve(name, timeout=timeout)

    def exists(self, oid: AnyID) -> bool:
        return super().exists(oid) or self._tier.holds(to_id(oid))

    def generation_of(self, oid: AnyID) -> int:
        try:
            return super().generation_of(oid)
        except ObjectNotFound:
            if not self.recall(oid):
                raise
        return super().generation_of(oid)

    def recall(self, oid: AnyID, *, life: tuple[str, int] | None = None) -> bool:
        return self._tier.recall(self, to_id(oid), life)

    # --- deleting

    def delete(self, oid: AnyID, *, members: bool = True) -> bool:
        others = members_of(self._raw(), to_id(oid).binary) if members else []
        there = super().delete(oid, members=members)
        there = self._tier.forget(to_id(oid)) or there
        for other in others:
            self._tier.forget(ObjectID(other))
        return there

    def unset_name(self, name: str) -> None:
        there = self._tier.unbind(self, name)
        try:
            super().unset_name(name)
        except ObjectNotFound:
            if not there:
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
        return DurableStore.over(opened, self._durable, declare=True)

    @property
    def durable(self) -> Durable | None:
        return self._durable

    def flush_durable(self, timeout: float | None = None) -> None:
        self._tier.flush(timeout)

    def close(self) -> None:
        if self._closed:
            return
        try:
            self._tier.flush(None)
        finally:
            super().close()

    def __reduce__(self) -> Any:
        from functools import partial

        from entrepot._connect import connect

        again = partial(
            connect,
            self._address,
            session=self._session,
            scope=self._scope,
            durable=self._durable,
            **self._pickle_arguments(),
        )
        return (again, ())
