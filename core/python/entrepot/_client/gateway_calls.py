"""Calls to the store's gateway, which reaches the other stores of its cluster.

The daemon passes them on; operation and payload are between this module and the gateway (``entrepot_cluster``).
Payloads are msgpack. A gateway that does not know an operation says so, with ``VersionMismatch``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgpack

from entrepot.errors import (
    BY_CODE,
    CorruptData,
    DirectoryUnavailable,
    EntrepotError,
    InvalidArgument,
    ObjectNotFound,
    StoreUnavailable,
    Timeout,
    VersionMismatch,
)
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core

FETCH = "fetch"  # objects given by ID alone; sent by the C++ client; an empty payload: do not wait for their seal
FETCH_LIFE = "fetch_life"
FETCH_LIVES = "fetch_lives"
PREFETCH_LIVES = "prefetch_lives"
RESOLVE = "resolve"
LOCATE = "locate"
PUBLISH = "publish"
MIGRATE = "migrate"
PREFETCH = "prefetch"
STREAM = "stream"  # about streams of the cluster; see entrepot._streams.relays
NO_GATEWAY = "this store has no gateway"  # how the error of a call begins in a store that is in no cluster
PUBLISH_IDS = 10_000  # in one call
FETCH_LIVES_IDS = 4096
PUBLISH_REPLICAS = "publish_replicas"
REPLICAS = "replicas"
DRAIN = "drain"
LEAVE = "leave"


class Life(NamedTuple):
    """A life of an object: the instance that holds or held it (32 hexadecimal digits), and its generation there."""

    instance: str
    generation: int


class Place(NamedTuple):
    """A store that has an object, or had it when it was lost.

    Attributes:
        instance: the store, 32 hexadecimal digits.
        host: name of its host.
        generation: of the object there.
        nbytes: size of its payload.
        is_live: whether the store can be reached, as far as the directory knows.
        lost_since: if not, since when, in seconds since 1970; 0.0 otherwise.
    """

    instance: str
    host: str
    generation: int
    nbytes: int
    is_live: bool
    lost_since: float


def fetch_life(raw: _core.Client, oid: ObjectID, instance: str, generation: int) -> ObjectID:
    """Fetch exactly one life of an object; return the ID that it has here, which is another one if its own is taken.

    Takes as long as the transfer makes progress.

    Raises:
        ObjectNotFound, ObjectLost: no store has it any more; the message says where it was.
        StoreUnavailable: there is no gateway, or it cannot say.
    """
    answer = call(raw, FETCH_LIFE, [oid.binary, instance, generation], 0)
    try:
        return ObjectID(answer)
    except InvalidArgument as error:
        raise CorruptData(f"the gateway's answer about object {oid} cannot be read: {answer!r}") from error


def fetch_lives(raw: _core.Client, lives: Sequence[tuple[ObjectID, Life]]) -> list[EntrepotError | None] | None:
    """Fetch exactly these lives of objects, in one request to each store that has some; as :func:`fetch_life`.

    Returns:
        for each why it could not be fetched; None: it is here, for :func:`entrepot.origins.copy_of` to find. None
        instead of a list: there is no gateway, or one of an earlier release.
    """
    errors: list[EntrepotError | None] = []
    for begin in range(0, len(lives), FETCH_LIVES_IDS):
        part = [[oid.binary, *life] for oid, life in lives[begin : begin + FETCH_LIVES_IDS]]
        try:
            answer = call(raw, FETCH_LIVES, part, 0)
        except (StoreUnavailable, VersionMismatch):
            return None
        errors += [None if each is None else BY_CODE.get(each[0], EntrepotError)(each[1]) for each in answer]
    return errors


def prefetch_lives(raw: _core.Client, lives: Sequence[tuple[ObjectID, Life]]) -> None:
    """Start fetching exactly these lives of objects, without waiting for them; does nothing if there is no gateway."""
    with suppress(StoreUnavailable, VersionMismatch):
        for begin in range(0, len(lives), FETCH_LIVES_IDS):
            call(raw, PREFETCH_LIVES, [[oid.binary, *life] for oid, life in lives[begin : begin + FETCH_LIVES_IDS]], 0)


class ResolvedElsewhere(NamedTuple):
    """What other stores know of a name.

    Attributes:
        oid: the ID that the object has here now; None: nothing is known.
        ask_again: whether it makes sense to ask again.
        why_unknown: why other stores could not be asked.
    """

    oid: ObjectID | None = None
    ask_again: bool = True
    why_unknown: str = ""


def resolve_elsewhere(raw: _core.Client, scope: str, session: str, name: str, timeout: float) -> ResolvedElsewhere:
    """Look a name up in other stores, and fetch what it is bound to there."""
    try:
        return ResolvedElsewhere(ObjectID(call(raw, RESOLVE, [scope, session, name], timeout)))
    except (ObjectNotFound, Timeout):
        return ResolvedElsewhere()
    except DirectoryUnavailable as error:
        return ResolvedElsewhere(why_unknown=error.message)
    except (StoreUnavailable, VersionMismatch) as error:
        is_alone = error.message.startswith(NO_GATEWAY)  # the code is the same if there is one that does not respond
        return ResolvedElsewhere(ask_again=False, why_unknown="" if is_alone else error.message)


def prefetch(raw: _core.Client, oids: list[bytes]) -> None:
    """Start fetching objects, without waiting for them; does nothing if there is no gateway."""
    with suppress(StoreUnavailable, VersionMismatch):
        call(raw, PREFETCH, oids, 0)


def locate(raw: _core.Client, oid: ObjectID, timeout: float) -> list[Place]:
    """Return where an object is, as the directory knows.

    Raises:
        StoreUnavailable: there is no gateway, or the directory does not answer.
    """
    return [Place(*fields) for fields in call(raw, LOCATE, oid.binary, timeout)]


class ReplicaStatus(NamedTuple):
    """How far the copies are that sessions ask for (``connect(replicas=)``).

    Attributes:
        objects: how many objects this store sees to: those that were put here, or whose original was lost.
        incomplete: those of them that have fewer copies than they could have at the moment.
        without_host: those that have fewer than they should because the cluster has too few hosts.
    """

    objects: int
    incomplete: int
    without_host: int


def replica_status(raw: _core.Client, timeout: float) -> ReplicaStatus:
    """Return how far the copies are that sessions ask for.

    Raises:
        StoreUnavailable: there is no gateway, or it does not answer.
    """
    return ReplicaStatus(**call(raw, REPLICAS, None, timeout))


def drain(raw: _core.Client, oids: list[bytes], to: str) -> list[tuple[str, str]]:
    """Move a batch of objects to other hosts (``entrepot drain``), as long as the transfers make progress.

    Returns:
        for each what became of it, ``"moved"``, ``"left"``, ``"gone"`` or ``"kept"``; and where it is, or why.
    """
    return [(what, detail) for what, detail in call(raw, DRAIN, [oids, to], 0)]


def leave(raw: _core.Client, timeout: float) -> None:
    """Have the gateway leave the cluster, and end."""
    call(raw, LEAVE, None, timeout)


def publish(raw: _core.Client, oids: Sequence[ObjectID], timeout: float, *, wait_for_replicas: bool = False) -> None:
    """Publish objects, and wait until the directory has them; or until as many stores have them as are to.

    Raises:
        ObjectNotFound: one of them is not in this store.
        StoreUnavailable: there is no gateway.
        DirectoryUnavailable: the directory does not answer.
        Timeout: not in time.
    """
    end = time.monotonic() + timeout
    for begin in range(0, len(oids), PUBLISH_IDS):
        ids = [oid.binary for oid in oids[begin : begin + PUBLISH_IDS]]
        left = max(end - time.monotonic(), 0.001) if timeout else 0
        if wait_for_replicas:
            call(raw, PUBLISH_REPLICAS, ids, left)
        else:
            # One alone as gateways of earlier releases know it.
            call(raw, PUBLISH, ids[0] if len(oids) == 1 else ids, left)


def migrate(raw: _core.Client, oid: ObjectID, to: str, timeout: float) -> None:
    """Move an object, or a collection with its members, to another store.

    Raises:
        ObjectNotFound: it is not in this store, or there is no such store.
        StoreFull: it does not fit there; it stays here.
        StoreUnavailable: there is no gateway, or the other store cannot be reached.
    """
    call(raw, MIGRATE, [oid.binary, to], timeout)


def call(raw: _core.Client, operation: str, request: Any, timeout: float) -> Any:
    """Make a call without objects to wait for; return its answer.

    Raises:
        EntrepotError: as the gateway answered; StoreUnavailable: there is none.
    """
    payload = cast("bytes", msgpack.packb(request))
    return msgpack.unpackb(raw.call_gateway(operation, [], payload, timeout))
