"""Collections: methods of ``Store``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.locality import Reading
    from entrepot._client.locality_sets import LocalitySetOrName
    from entrepot._client.store import Store
    from entrepot._collections.builder import CollectionBuilder


class CollectionMethods:
    """Methods of :class:`Store` for collections."""

    def collection(
        self,
        name: str,
        *,
        producer: str | None = None,
        locality_set: LocalitySetOrName | None = None,
        reading: Reading | None = None,
    ) -> CollectionBuilder:
        """Return a builder for the collection of this name in this session, to put members and to seal it.

        This creates nothing yet; every process that asks for the same name in the same session builds the same
        collection. Once sealed, it is read with ``get_by_name``.

        Args:
            name: its name within this session.
            producer: identifies who appends, such as a task's name: a rerun with the same producer finds what it
                appended before. Concurrent producers need different names. Default: a new producer each time.
            locality_set: the set that its members are put into (:meth:`locality_set`), or its name. Default: the
                collection's own set, ``collection:NAME``, so that eviction treats the members as read together.
            reading: reading pattern of the collection's own set, such as ``"random"`` (:class:`LocalitySet`). Default:
                as declared before, or inferred from the reads.

        Raises:
            InvalidArgument: a malformed name; or, on the first put, an unknown reading pattern.
            ObjectNotFound: on the first put: there is no such set.
        """
        from entrepot._collections.builder import CollectionBuilder

        return CollectionBuilder(cast("Store", self), name, producer, locality_set, reading)


def delete_object(raw: _core.Client, oid: bytes, members: bool) -> bool:
    """Delete an object; if it is a collection and ``members`` is true, also delete its members.

    The collection goes first, so that nobody can find one that lacks members.
    """
    if not members:
        return raw.delete([oid])[0]
    from entrepot._collections.members import delete_all, members_of

    member_ids = members_of(raw, oid)
    deleted = raw.delete([oid])[0]
    delete_all(raw, member_ids)
    return deleted
