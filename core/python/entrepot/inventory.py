"""Inventory of a store, over all scopes and sessions, for reporting. Reads and pins nothing except collections' lists
of members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot._client.info import SessionInfo
from entrepot._client.queries import all_sessions, iter_objects, list_page, session_number
from entrepot._collections.members import members_of
from entrepot._collections.metadata import summarize
from entrepot.codec import inlined_bytes
from entrepot.durable import Durable, durable_config
from entrepot.errors import CorruptData, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.lazy_imports import deprecated_names

if TYPE_CHECKING:
    from entrepot._store.store import Store


@dataclass(frozen=True, slots=True)
class ObjectListing:
    """An object that the store holds.

    Attributes:
        id, generation: identify the object.
        nbytes: size of its buffers, without values stored inline in its metadata (:class:`Kind`).
        state: as in ``ObjectInfo``.
        scope, session: where it belongs.
        names: names bound to it in that session.
    """

    id: ObjectID
    generation: int
    nbytes: int
    state: str
    scope: str
    session: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Type of an object.

    Attributes:
        type: the codec that wrote it; for a collection, that of its members, or empty if they differ.
        members: number of members; None: not a collection.
        nbytes: for a collection, the size of its members; else the bytes of its value stored inline in its metadata.
    """

    type: str
    members: int | None = None
    nbytes: int = 0


def everything(store: Store) -> Iterator[ObjectListing]:
    """Yield every object of the store, whoever owns it, as the daemon lists them.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
    yield from map(_listing, iter_objects(raw, session, all_sessions=True))


def page_of_session(store: Store, scope: str, session: str, cursor: int = 0) -> tuple[list[ObjectListing], int | None]:
    """Return up to 1000 objects of one session, and where the next page begins; None: this is the last.

    The daemon passes over the objects of other sessions, which costs it far less than listing them.

    Args:
        store: any session of the store.
        scope, session: the session to list.
        cursor: where the page begins, as returned for the one before.

    Raises:
        ObjectNotFound: there is no such session.
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    records, following = list_page(raw, session_number(raw, scope, session), "*", cursor)
    return [_listing(record) for record in records], following


def _listing(record: dict[str, Any]) -> ObjectListing:
    return ObjectListing(
        ObjectID(record["id"]),
        record["generation"],
        record["nbytes"],
        record["state"],
        record["scope"],
        record["session"],
        tuple(record["names"]),
    )


def sessions(store: Store) -> list[SessionInfo]:
    """Return every session of the store, in all scopes.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    return all_sessions(store._raw())  # pyright: ignore[reportPrivateUsage]


def kind_of(store: Store, oid: ObjectID) -> Kind | None:
    """Return an object's type, read from its metadata; None: it is gone by now, or its metadata is unreadable.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        tree = raw.tree(oid.binary)[0]
        type_name, collection, _ = summarize(tree)
    except (ObjectNotFound, ObjectLost, CorruptData):
        return None
    if collection is None:
        return Kind(type_name, nbytes=inlined_bytes(tree))
    return Kind(str(collection["type"] or ""), int(collection["members"]), int(collection["nbytes"]))


def members(store: Store, oid: ObjectID) -> list[ObjectID]:
    """Return the members of a collection in order; empty for any other object, and for one that is gone.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    return [ObjectID(member_id) for member_id in members_of(raw, oid.binary)]


def durability(store: Store, scope: str, session: str) -> Durable | None:
    """Return a session's durability declaration (``connect(durable=)``); None: it is not durable.

    Raises:
        CorruptData: the declaration cannot be read.
        VersionMismatch: it was written by a newer version.
    """
    return durable_config(store._client, scope, session)  # pyright: ignore[reportPrivateUsage]


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Held": "ObjectListing"})
