"""Calls to the store's gateway about collections: where members are, and building over several hosts.

As :mod:`entrepot._client.gateway_calls`; what peers answer to a gateway is passed on as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot._client.gateway_calls import NO_GATEWAY, Place, call
from entrepot.errors import BY_CODE, CorruptData, EntrepotError, StoreUnavailable, VersionMismatch

if TYPE_CHECKING:
    from entrepot import _core

LOCATE_MANY = "locate_many"
EXTENT = "collection_extent"
DESCRIBE = "collection_describe"
SPREAD = "collection_spread"
DISCARD = "collection_discard"
DELETE = "collection_delete"
LOCATE_IDS = 4096  # in one call
DESCRIBE_INDEXES = 4096


class Answer(NamedTuple):
    """What one of the cluster's stores answered.

    Attributes:
        instance, host: the store.
        value: its answer; None if there is an error.
        error: why it did not answer.
    """

    instance: str
    host: str
    value: Any
    error: EntrepotError | None


def locate_many(raw: _core.Client, oids: Sequence[bytes], timeout: float) -> list[list[Place]] | None:
    """Return for each object the stores that have it, this one first; None: there is no gateway.

    Raises:
        DirectoryUnavailable: the directory does not answer.
        Timeout: not in time.
    """
    try:
        places = call(raw, LOCATE_MANY, list(oids), timeout)
    except (StoreUnavailable, VersionMismatch):
        return None
    return [[Place(*fields) for fields in of_object] for of_object in places]


def extent(raw: _core.Client, scope: str, session: str, name: str, *, timeout: float = 0) -> list[Answer] | None:
    """Ask each other store how many indexes of an open collection it knows of.

    Returns:
        their answers; None: this store is in no cluster.

    Raises:
        StoreUnavailable: the gateway is away.
        DirectoryUnavailable: it is not known which stores there are.
        Timeout: not in time; 0: as long as there is progress.
    """
    return _ask_all(raw, EXTENT, [scope, session, name], timeout)


def describe(
    raw: _core.Client,
    scope: str,
    session: str,
    name: str,
    indexes: Sequence[int],
    *,
    checksums: bool = False,
    timeout: float = 0,
) -> list[Answer] | None:
    """Ask each other store for descriptions of the members that it has at some indexes, at most ``DESCRIBE_INDEXES``.

    Returns:
        answers for :func:`entrepot._collections.member_search.parse_descriptions`; None: this store is in no cluster.

    Raises:
        StoreUnavailable, DirectoryUnavailable, Timeout: as for :func:`extent`.
    """
    return _ask_all(raw, DESCRIBE, [scope, session, name, list(indexes), checksums], timeout)


def spread(
    raw: _core.Client, oid: bytes, name: str, digest: bytes, lives: dict[str, bytes], *, timeout: float = 0
) -> list[Answer]:
    """Give a sealed collection to the stores that have members of it, and have them publish these.

    Args:
        raw: the store that sealed it.
        oid, name, digest: of the collection.
        lives: for each instance the digest of its members and their generations.

    Raises:
        StoreUnavailable, VersionMismatch: there is no gateway, or an older one.
        DirectoryUnavailable: what is here could not be published.
        Timeout: not in time.
    """
    return _answers(call(raw, SPREAD, [oid, name, digest, lives], timeout))


def discard(
    raw: _core.Client,
    scope: str,
    session: str,
    name: str,
    *,
    members: bool,
    digest: bytes | None = None,
    timeout: float = 0,
) -> list[Answer] | None:
    """Delete a collection, sealed or not, in all other stores.

    Args:
        raw: this store.
        scope, session, name: the collection.
        members: whether to delete its members there too.
        digest: delete only a collection with this digest, and no members where there is another one. Default: any.
        timeout: in seconds; 0: as long as there is progress.

    Returns:
        for each the number of members deleted; None: this store is in no cluster.

    Raises:
        StoreUnavailable, DirectoryUnavailable, Timeout: as for :func:`extent`; nothing was deleted, or it is not known
            what was.
    """
    return _ask_all(raw, DISCARD, [scope, session, name, members, digest], timeout)


def delete(raw: _core.Client, scope: str, session: str, name: str, digest: bytes) -> list[Answer] | None:
    """Delete a sealed collection and its members in all other stores, unless the one here is a copy from one of them.

    Args:
        raw: this store.
        scope, session, name: the collection.
        digest: of it; other stores keep another one, with its members.

    Returns:
        for each the number of members deleted; None: this store is in no cluster, or has an older gateway.

    Raises:
        StoreUnavailable, DirectoryUnavailable: as for :func:`discard`.
    """
    return _ask_all(raw, DELETE, [scope, session, name, digest], 0)


def _ask_all(raw: _core.Client, operation: str, request: list[Any], timeout: float) -> list[Answer] | None:
    try:
        return _answers(call(raw, operation, request, timeout))
    except VersionMismatch:
        return None
    except StoreUnavailable as error:
        if error.message.startswith(NO_GATEWAY):
            return None
        raise


def _answers(packed: Any) -> list[Answer]:
    try:
        return [
            Answer(instance, host, value, None if code is None else BY_CODE.get(code, EntrepotError)(message))
            for instance, host, value, code, message in packed
        ]
    except (ValueError, TypeError) as error:
        raise CorruptData(f"the gateway's answer about a collection cannot be read: {error}") from error
