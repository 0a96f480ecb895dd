"""Deletion of objects that may be collections."""

from __future__ import annotations

from entrepot import _core


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
