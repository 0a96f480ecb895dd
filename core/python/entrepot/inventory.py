"""All that a store holds, over all scopes and sessions. For whatever reports on it; nothing is read or pinned but lists
of members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot._collection_members import members_of
from entrepot._collection_tree import described
from entrepot._reports import listing
from entrepot.codec import inlined_bytes, unpack_tree
from entrepot.durable import Durable, declared
from entrepot.errors import CorruptData, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store import Store


@dataclass(frozen=True, slots=True)
class Held:
    """An object that the store holds.

    Attributes:
        id, generation: which object.
        nbytes: its buffers; what its metadata holds (:class:`Kind`) is not among it.
        state: as in ``ObjectInfo``.
        scope, session: where it belongs.
        names: bound to it in that session.
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
    """What an object is.

    Attributes:
        type: the codec that wrote it; of a collection, that of its members, empty where they differ.
        members: how many; None: it is no collection.
        nbytes: of a collection, the size of its members; else what the object's metadata holds of its value.
    """

    type: str
    members: int | None = None
    nbytes: int = 0


def everything(store: Store) -> Iterator[Held]:
    """Every object of the store, whoever's it is, as the daemon lists them.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
    for one in listing(raw, session, everywhere=True):
        yield Held(
            ObjectID(one["id"]),
            one["generation"],
            one["nbytes"],
            one["state"],
            one["scope"],
            one["session"],
            tuple(one["names"]),
        )


def kind_of(store: Store, oid: ObjectID) -> Kind | None:
    """What an object is, from its metadata alone; None: it went meanwhile, or its metadata cannot be read.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        tree = raw.tree(oid.binary)[0]
        type_name, collection, _ = described(unpack_tree(tree))
    except (ObjectNotFound, ObjectLost, CorruptData):
        return None
    if collection is None:
        return Kind(type_name, nbytes=inlined_bytes(tree))
    return Kind(str(collection["type"] or ""), int(collection["members"]), int(collection["nbytes"]))


def members(store: Store, oid: ObjectID) -> list[ObjectID]:
    """The members of a collection in their order; of anything else, or of one that is gone, none.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    return [ObjectID(one) for one in members_of(raw, oid.binary)]


def durability(store: Store, scope: str, session: str) -> Durable | None:
    """What a session was declared to be (``connect(durable=)``); None: it is not durable.

    Raises:
        CorruptData: the declaration cannot be read.
        VersionMismatch: a newer version wrote it.
    """
    return declared(store._client, scope, session)  # pyright: ignore[reportPrivateUsage]
