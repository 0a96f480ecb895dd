"""The methods of a store about collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._collection_builder import CollectionBuilder
    from entrepot._locality import Reading
    from entrepot._store import Store
    from entrepot._store_sets import AnySet


class CollectionMethods:
    """Part of :class:`Store`."""

    def collection(
        self,
        name: str,
        *,
        producer: str | None = None,
        locality_set: AnySet | None = None,
        reading: Reading | None = None,
    ) -> CollectionBuilder:
        """A hand on the collection of a name in this session, to put members into it and to seal it.

        Nothing is made by that: any process that asks for the same name in the same session builds the same collection.
        Read it with ``get_by_name`` when it is sealed.

        Args:
            name: its name, in this session.
            producer: who appends, such as the name of a task: run again, it finds what it appended before. Two that
                append at the same time have different names. Default: somebody new each time.
            locality_set: the set that its members are put into (:meth:`locality_set`), or its name; default: one of
                their own, ``collection:NAME``, so that eviction knows them as what is read together.
            reading: how that set of their own is read, such as ``"random"`` (:class:`LocalitySet`); default: as was
                said before, or inferred from the reads.

        Raises:
            InvalidArgument: a name of the wrong form; or, with the first put, an unknown way of reading.
            ObjectNotFound: with the first put: there is no such set.
        """
        from entrepot._collection_builder import CollectionBuilder

        return CollectionBuilder(cast("Store", self), name, producer, locality_set, reading)


def delete_object(raw: _core.Client, oid: bytes, members: bool) -> bool:
    """Delete an object, and, of a collection, its members.

    The collection goes first: from then on nobody finds one that lacks members.
    """
    if not members:
        return raw.delete([oid])[0]
    from entrepot._collection_members import delete_all, members_of

    others = members_of(raw, oid)
    deleted = raw.delete([oid])[0]
    delete_all(raw, others)
    return deleted
