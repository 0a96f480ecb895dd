"""Deletion of objects that may be collections, whose members may be on several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.errors import StoreUnavailable

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.collection_calls import Answer


def delete_object(raw: _core.Client, oid: bytes, members: bool) -> bool:
    """Delete an object; if it is a collection and ``members`` is true, also delete its members.

    A collection that was sealed here, or moved here, is deleted on the other hosts that have it or members of it, too;
    a copy alone. They come first: a call that fails there has deleted nothing here, and can be repeated. On each host,
    the collection goes first, so that nobody finds one there that lacks members.

    Raises:
        StoreUnavailable: a live host, which the message names, does not answer, or the gateway here does not.
        DirectoryUnavailable: it is not known which hosts there are.
    """
    if not members:
        return raw.delete([oid])[0]
    from entrepot._client import collection_calls
    from entrepot._collections.members import delete_all, sealed_contents

    contents = sealed_contents(raw, oid)
    if contents is None:
        return raw.delete([oid])[0]
    answers = collection_calls.delete(raw, contents.scope, contents.session, contents.name, contents.digest())
    refuse_silent(contents.name, answers)
    member_ids = [contents.id_of(position).binary for position in range(contents.count)]
    deleted = raw.delete([oid])[0]
    delete_all(raw, member_ids)
    return deleted


def refuse_silent(name: str, answers: Sequence[Answer] | None) -> None:
    """Check that all other stores have deleted what they had of a collection.

    Raises:
        StoreUnavailable: some have not answered; it names them.
    """
    silent = [answer for answer in answers or () if answer.error is not None]
    if silent:
        raise StoreUnavailable(
            f"collection {name!r}, or members of it, may still be on hosts that did not answer: delete or discard it "
            "again. " + "; ".join(f"host {answer.host}: {answer.error}" for answer in silent)
        )
