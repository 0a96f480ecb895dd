"""What a store says about puts, objects and sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from entrepot.ids import ObjectID

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object, as the daemon sees it.

    Attributes:
        id: its ID.
        generation: which life of that ID this is.
        type: codec that wrote it, such as ``"numpy.ndarray"``.
        nbytes: its size in bytes: its buffers, and what of it lies in its metadata because it is small.
        record_bytes: bytes of its metadata (and inline payload) in control memory.
        state: ``"sealed"`` (in memory) or ``"spilled"`` (on disk; a get brings it back); others belong to objects on
            their way out.
        scope, session: where it belongs.
        names: bound to it in that session.
        created: when it was sealed, in seconds since 1970.
        pins: how many processes read it now.
        pinned_by: those processes.
        collection: of a collection: its ``name``, how many ``members``, their ``nbytes``, ``rows`` and ``type``.
        member_of: of a member: its collection's ``name`` and its ``index``.
        blobs: its ranges of shared memory, with how many objects share each, and whether a copy is on disk.
        why: why it is where it is; empty in lists.
        locality_set: the set that it belongs to; ``""`` is the session's default one.
        priority: its own, -8 to 8, beside its set's.
        kept: its user wants it in memory (``hint(oid, keep=True)``).
        consumers: how many were counted on when it was put; 0: nobody counts.
        consumers_left: how many of them have not had it.
        dead: nobody needs it any more; it goes first, without being written.
        recompute_seconds: what making it again takes, as its writer said; None: it cannot be made again, and so is
            never dropped.
        made_again: it was dropped once and made again, so it is not dropped a second time.
        eviction: the terms of its rank among those that may leave memory (docs/eviction.md); empty in lists.
    """

    id: ObjectID
    generation: int
    type: str
    nbytes: int
    record_bytes: int
    state: str
    scope: str
    session: str
    names: list[str]
    created: float
    pins: int = 0
    pinned_by: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    blobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    collection: dict[str, Any] | None = None
    member_of: dict[str, Any] | None = None
    why: str = ""
    locality_set: str = ""
    priority: int = 0
    kept: bool = False
    consumers: int = 0
    consumers_left: int = 0
    dead: bool = False
    recompute_seconds: float | None = None
    made_again: bool = False
    eviction: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a put did.

    Attributes:
        id: the object's ID.
        generation: which life of that ID this value is; another value under the same ID has another.
        nbytes: its size in bytes, as in :class:`ObjectInfo`.
        existed: whether identical content was sealed under this ID before, so that nothing was written.
    """

    id: ObjectID
    generation: int
    nbytes: int
    existed: bool


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session.

    Attributes:
        scope, session: its name; the session ``""`` is the scope's own.
        ttl_seconds: after the last use; 0: for ever.
        idle_seconds: since the last use.
        objects: how many are in it.
        nbytes: their payload in bytes.
        limit_bytes, limit_objects: 0: none.
        deletes_consumed: whether an object whose last consumer had it is deleted at once.
    """

    scope: str
    session: str
    ttl_seconds: int
    idle_seconds: float
    objects: int
    nbytes: int
    limit_bytes: int
    limit_objects: int
    deletes_consumed: bool


def object_info(
    raw: dict[str, Any],
    type_name: str,
    collection: dict[str, Any] | None = None,
    member_of: dict[str, Any] | None = None,
) -> ObjectInfo:
    """From the daemon's JSON, and what the object's tree says."""
    return ObjectInfo(
        id=ObjectID(raw["id"]),
        generation=raw["generation"],
        type=type_name,
        nbytes=raw["nbytes"],
        record_bytes=raw["record_bytes"],
        state=raw["state"],
        scope=raw["scope"],
        session=raw["session"],
        names=raw["names"],
        created=raw["sealed_unix_ns"] / NANOSECONDS,
        pins=raw.get("pins", 0),
        pinned_by=raw.get("pinned_by", []),
        blobs=raw.get("blobs", []),
        collection=collection,
        member_of=member_of,
        why=raw.get("why", ""),
        locality_set=raw["locality_set"],
        priority=raw["priority"],
        kept=raw["user_pinned"],
        consumers=raw["consumers"],
        consumers_left=raw["consumers_left"],
        dead=raw["dead"],
        recompute_seconds=raw["recompute_seconds"],
        made_again=raw["made_again"],
        eviction=raw.get("eviction", {}),
    )


def session_info(raw: dict[str, Any]) -> SessionInfo:
    """From the daemon's JSON."""
    return SessionInfo(**{name: raw[name] for name in SessionInfo.__slots__})
