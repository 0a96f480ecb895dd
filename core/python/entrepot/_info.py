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
        nbytes: payload in bytes.
        record_bytes: bytes of its metadata (and inline payload) in control memory.
        state: ``"sealed"``; others belong to objects on their way out.
        scope, session: where it belongs.
        names: bound to it in that session.
        created: when it was sealed, in seconds since 1970.
        pins: how many processes read it now.
        pinned_by: those processes.
        blobs: its ranges of shared memory, with how many objects share each.
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


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a put did.

    Attributes:
        id: the object's ID.
        generation: which life of that ID this value is; another value under the same ID has another.
        nbytes: its payload in bytes.
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
    """

    scope: str
    session: str
    ttl_seconds: int
    idle_seconds: float
    objects: int
    nbytes: int
    limit_bytes: int
    limit_objects: int


def object_info(raw: dict[str, Any], type_name: str) -> ObjectInfo:
    """From the daemon's JSON."""
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
    )


def session_info(raw: dict[str, Any]) -> SessionInfo:
    """From the daemon's JSON."""
    return SessionInfo(**{name: raw[name] for name in SessionInfo.__slots__})
