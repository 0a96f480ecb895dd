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
    """A store and session, to be sent to workers, for one attempt to store a collection.

    When a partition fails, tasks of others still run, and nobody waits for them. So there is an object as long as the
    attempt lasts: a task that no longer finds it after its put deletes what it has put.

    Attributes:
        address, scope, session: as the arguments of ``entrepot.connect``.
        attempt: ID of the attempt's object, in hexadecimal digits.
    """

    address: str
    scope: str
    session: str
    attempt: str

    @classmethod
    def begin(cls, store: Store) -> StoreAccess:
        """The access to a store that is open here, for a new attempt."""
        return cls(store.address, store.scope, store.session_name, str(store.put(b"")))

    def end(self, store: Store) -> None:
        """End the attempt: what is put afterwards does not stay."""
        store.delete(self.attempt)

    def put_member(self, value: Any, name: str, index: int) -> None:
        """Put one member of a collection; a task that is run again replaces what it put before."""
        store = _open(self)
        member = store.collection(name).put(value, index=index, replace=True)
        if not store.exists(self.attempt):
            store.delete(member)


@lru_cache(maxsize=8)  # one connection for the process, not one for each partition
def _open(access: StoreAccess) -> Store:
    return connect(access.address, scope=access.scope, session=access.session)


def is_table(collection: Collection) -> bool:
    """Whether the members are tables: they have rows, and these have no shape."""
    return collection.rows is not None and collection.row_shape is None


def member_views(collection: Collection) -> list[Collection]:
    """Each member as a collection of one, which is cheap to send."""
    return [collection.select([position]) for position in range(len(collection))]
