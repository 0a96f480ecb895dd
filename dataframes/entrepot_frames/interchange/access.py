"""How a worker reaches the store, and what members it finds there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from entrepot import connect

if TYPE_CHECKING:
    from entrepot import Collection, Store


@dataclass(frozen=True)
class StoreAccess:
    """A store and session, to be sent to workers; fields as the arguments of ``entrepot.connect``."""

    address: str
    scope: str
    session: str

    @classmethod
    def of(cls, store: Store) -> StoreAccess:
        """The access to a store that is open here."""
        return cls(store.address, store.scope, store.session_name)

    def put_member(self, value: Any, name: str, index: int) -> None:
        """Put one member of a collection; a task that is run again replaces what it put before."""
        _open(self).collection(name).put(value, index=index, replace=True)


@lru_cache(maxsize=8)  # one connection for the process, not one for each partition
def _open(access: StoreAccess) -> Store:
    return connect(access.address, scope=access.scope, session=access.session)


def is_table(collection: Collection) -> bool:
    """Whether the members are tables: they have rows, and these have no shape."""
    return collection.rows is not None and collection.row_shape is None


def member_views(collection: Collection) -> list[Collection]:
    """Each member as a collection of one, which is cheap to send."""
    return [collection.select([position]) for position in range(len(collection))]
