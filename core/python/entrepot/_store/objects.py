"""Access to the objects of a session: directly, or (:mod:`entrepot._store.durable_objects`) with a durable tier."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

from entrepot import _core
from entrepot._client.arguments import AnyID, checked_boolean, checked_name, copy_mode_number, timeout_seconds, to_id
from entrepot._client.gateway_calls import resolve_elsewhere
from entrepot._client.info import PutResult
from entrepot._client.session import Session
from entrepot._codecs import inline_bytes
from entrepot._codecs.encoding import decode_object, encode_item
from entrepot._collections.deletion import delete_object
from entrepot.codec import CopyMode
from entrepot.durable import Durable
from entrepot.errors import InvalidArgument, ObjectNotFound, Timeout
from entrepot.ids import ObjectID

FIRST_WAIT_SECONDS = 0.001  # for a name to be bound here, before the gateway is asked about it
REMOTE_POLL_SECONDS = 0.5  # between questions to the gateway about a name, while it is waited for here
PUT_WAIT_SECONDS = 30.0  # how long a put waits for memory: to be provisioned, released by readers, or deleted

AnyStore = Any
"""An :class:`entrepot.Store`. It passes itself with each call that needs it: if its parts referred to it, dropping the
last reference to a store would no longer close its session at once."""


class ObjectAccess(ABC):
    """Reads and writes of the objects of a store's session. Thread-safe. Errors are those of ``Store``'s methods."""

    @property
    @abstractmethod
    def durable(self) -> Durable | None:
        """The session's durability settings; None: it is not durable."""

    @abstractmethod
    def put_item(self, store: AnyStore, item: _core.Item) -> tuple[int, int, bool]:
        """Seal one object; return its generation, the size of its buffers, and whether an identical one existed."""

    @abstractmethod
    def put_items(self, store: AnyStore, items: list[_core.Item]) -> None:
        """Seal several objects in one round trip."""

    @abstractmethod
    def put_new(self, store: AnyStore, values: list[Any]) -> list[ObjectID]:
        """Seal several values under new IDs in one round trip."""

    @abstractmethod
    def seal_blob(
        self, store: AnyStore, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes
    ) -> PutResult:
        """Seal a blob that was written in place."""

    @abstractmethod
    def seal_built(self, store: AnyStore, builder: _core.ObjectBuilder, item: _core.Item) -> tuple[int, int, bool]:
        """Seal an object whose parts were built in the store; return the same as :meth:`put_item`."""

    @abstractmethod
    def get_versioned(
        self, store: AnyStore, oid: AnyID, timeout: float | None, copy: CopyMode, remote: bool = True
    ) -> tuple[Any, int]:
        """Return a value and its generation."""

    @abstractmethod
    def get_many(
        self, store: AnyStore, oids: list[AnyID], timeout: float | None, copy: CopyMode, remote: bool = True
    ) -> list[Any]:
        """Return several values."""

    @abstractmethod
    def exists(self, oid: AnyID) -> bool:
        """Return whether the object can be read."""

    @abstractmethod
    def generation_of(self, store: AnyStore, oid: AnyID) -> int:
        """Return an object's generation."""

    @abstractmethod
    def delete(self, oid: AnyID, members: bool) -> bool:
        """Delete an object, and the members of a collection; return whether it existed."""

    @abstractmethod
    def set_name(self, store: AnyStore, name: str, oid: AnyID, replace: bool) -> None:
        """Bind a name."""

    @abstractmethod
    def resolve(self, store: AnyStore, name: str, timeout: float | None, remote: bool = True) -> ObjectID:
        """Return what a name is bound to."""

    @abstractmethod
    def unset_name(self, store: AnyStore, name: str) -> None:
        """Remove a name."""

    @abstractmethod
    def make_durable(self, store: AnyStore, oid: AnyID) -> None:
        """Write an object to the durable tier."""

    @abstractmethod
    def recall(self, store: AnyStore, oid: AnyID, life: tuple[str, int] | None) -> bool:
        """Restore an object from the durable tier; return whether it was there."""

    @abstractmethod
    def flush(self, timeout: float | None) -> None:
        """Wait for pending writes to the durable tier."""


class DirectObjects(ObjectAccess):
    """The objects that are in the store itself.

    Args:
        session: the session; whoever opened it closes it.

    Attributes:
        session: as given; set once.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def durable(self) -> Durable | None:
        return None

    # --- writing

    def put_item(self, store: AnyStore, item: _core.Item) -> tuple[int, int, bool]:
        ((_, generation, existed, nbytes),) = self.session.raw().put([item], PUT_WAIT_SECONDS)
        return generation, nbytes, existed

    def put_items(self, store: AnyStore, items: list[_core.Item]) -> None:
        if items:
            self.session.raw().put(items, PUT_WAIT_SECONDS)

    def put_new(self, store: AnyStore, values: list[Any]) -> list[ObjectID]:
        oids, joined = ObjectID.random_joined(len(values))
        raw = self.session.raw()
        # Short byte strings need none of the codecs' machinery, which would take most of the time.
        if not raw.put_small_many(self.session.number, joined, values, inline_bytes.MAX_BYTES, PUT_WAIT_SECONDS):
            self.put_items(store, [to_item(self.session, *each, True) for each in zip(values, oids, strict=True)])
        return oids

    def seal_blob(
        self, store: AnyStore, raw: _core.WritableBlob, oid: ObjectID, fresh: bool, name: str, tree: bytes
    ) -> PutResult:
        item = (oid.binary, self.session.number, False, fresh, name, tree, ())
        _, generation, existed, nbytes = self.session.raw().seal(raw, item)
        return PutResult(oid, generation, nbytes, existed)

    def seal_built(self, store: AnyStore, builder: _core.ObjectBuilder, item: _core.Item) -> tuple[int, int, bool]:
        _, generation, existed, nbytes = self.session.raw().seal_built(builder, item, PUT_WAIT_SECONDS)
        return generation, nbytes, existed

    # --- reading

    def get_versioned(
        self,
        store: AnyStore,
        oid: AnyID,
        timeout: float | None = 0,
        copy: CopyMode = "never",
        remote: bool = True,
    ) -> tuple[Any, int]:
        mode, session, binary_id = copy_mode_number(copy), self.session, to_id(oid).binary
        raw = session.raw()
        try:
            pinned_object = raw.get(binary_id, timeout_seconds(timeout), remote=checked_boolean("remote", remote))
        except ObjectNotFound:
            raw.refuse_lost([binary_id])
            raise
        return (
            decode_object(
                pinned_object,
                copy,
                mode,
                allow_pickle=session.allow_pickle,
                object_strings=session.object_strings,
                store=store,
            ),
            pinned_object.generation,
        )

    def get_many(
        self,
        store: AnyStore,
        oids: list[AnyID],
        timeout: float | None = 0,
        copy: CopyMode = "never",
        remote: bool = True,
    ) -> list[Any]:
        mode = copy_mode_number(copy)
        remote = checked_boolean("remote", remote)
        wait, raw = timeout_seconds(timeout), self.session.raw()
        ids = [to_id(oid).binary for oid in oids]
        values: list[Any] = raw.get_small_many(ids)
        remaining = [index for index, value in enumerate(values) if value is None]
        if remaining:
            missing = [ids[index] for index in remaining]
            try:
                pinned_objects = raw.get_many(missing, wait, remote=remote)
            except ObjectNotFound:
                raw.refuse_lost(missing)
                raise
            allow_pickle, object_strings = self.session.allow_pickle, self.session.object_strings
            for index, pinned_object in zip(remaining, pinned_objects, strict=True):
                values[index] = decode_object(
                    pinned_object, copy, mode, allow_pickle=allow_pickle, object_strings=object_strings, store=store
                )
        return values

    def exists(self, oid: AnyID) -> bool:
        object_id = oid if type(oid) is ObjectID else to_id(oid)
        return self.session.raw().generation_of(object_id._binary) is not None

    def generation_of(self, store: AnyStore, oid: AnyID) -> int:
        if (generation := self.session.raw().generation_of(to_id(oid).binary)) is None:
            raise ObjectNotFound(f"no object {to_id(oid)} is sealed in the store at {self.session.address}")
        return generation

    # --- names and deletion

    def set_name(self, store: AnyStore, name: str, oid: AnyID, replace: bool = False) -> None:
        self.session.raw().bind_name(
            self.session.number, checked_name(name), to_id(oid).binary, checked_boolean("replace", replace)
        )

    def resolve(self, store: AnyStore, name: str, timeout: float | None = 0, remote: bool = True) -> ObjectID:
        session, wait = self.session, timeout_seconds(timeout)
        raw, end = session.raw(), time.monotonic() + wait
        checked_name(name)
        asks = checked_boolean("remote", remote)
        step = min(wait, FIRST_WAIT_SECONDS) if asks else wait
        why_unknown = ""
        while True:
            try:
                return ObjectID(raw.resolve_name(session.number, name, step))
            except (ObjectNotFound, Timeout) as error:  # not kept: it would keep the callers' variables
                left = end - time.monotonic()
                if asks and (wait == 0 or left > 0):
                    elsewhere = resolve_elsewhere(raw, session.scope, session.name, name, left if wait else 0)
                    if elsewhere.oid is not None:
                        return elsewhere.oid
                    asks, why_unknown, left = elsewhere.ask_again, elsewhere.why_unknown, end - time.monotonic()
                if wait == 0 and why_unknown:
                    raise ObjectNotFound(f"{error} here, and other stores could not be asked: {why_unknown}") from None
                if wait == 0 or (left <= 0 and isinstance(error, Timeout)):
                    raise
                if left <= 0:
                    raise Timeout(f"no object was bound to the name {name!r} within {wait:g} s") from error
                step = max(min(left, REMOTE_POLL_SECONDS) if asks else left, FIRST_WAIT_SECONDS)

    def unset_name(self, store: AnyStore, name: str) -> None:
        self.session.raw().unbind_name(self.session.number, checked_name(name))

    def delete(self, oid: AnyID, members: bool) -> bool:
        return delete_object(self.session.raw(), to_id(oid).binary, checked_boolean("members", members))

    # --- what only durable sessions have

    def make_durable(self, store: AnyStore, oid: AnyID) -> None:
        raise InvalidArgument(
            f"object {to_id(oid)} cannot be made durable: this session is not durable; "
            "connect with durable='URL', or use save()"
        )

    def recall(self, store: AnyStore, oid: AnyID, life: tuple[str, int] | None) -> bool:
        return False

    def flush(self, timeout: float | None) -> None:
        pass


def to_item(
    session: Session, value: Any, oid: ObjectID, fresh: bool, name: str = "", replace: bool = False
) -> _core.Item:
    """Encode a value into an item for :meth:`ObjectAccess.put_item`."""
    return encode_item(value, oid, fresh, session.number, name, replace, allow_pickle=session.allow_pickle)
