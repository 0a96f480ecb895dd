"""Marks beside objects that refer to what only lost hosts have: members of collections, collections in values.

not marked ──the gateway sees that an object that it refers to is lost──▶ marked ──another copy, the host returns──▶ not
                                                                            └──the object is replaced──▶ not valid

The gateway writes a mark as a small object of the same session, so that whoever reads it asks nobody, also while the
gateway or the directory is away. It is valid for one generation of the object.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgpack

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core

MAX_LISTED = 16  # lost objects that one mark lists; it counts them all
_KEY = "entrepot.lost:"
_BEGINS = b"\x94"  # msgpack: a list of four
_FORMAT = "lost"


@dataclass(frozen=True, slots=True)
class LostDependency:
    """An object that an object of this store refers to, directly or not, and that only lost stores have.

    Attributes:
        id: the lost object.
        instance: the store that had it, 32 hexadecimal digits.
        host: that store's host.
        since: since when it is lost, in seconds since 1970.
    """

    id: ObjectID
    instance: str
    host: str
    since: float

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"object {self.id} was on host {self.host}, lost since {at}"


@dataclass(frozen=True, slots=True)
class LostMark:
    """What is marked.

    Attributes:
        oid, generation: the object that refers to lost ones.
        count: to how many.
        lost: those, at most ``MAX_LISTED``.
    """

    oid: ObjectID
    generation: int
    count: int
    lost: tuple[LostDependency, ...]

    def to_bytes(self) -> bytes:
        """Serialize the mark."""
        lost = [[each.id.binary, each.instance, each.host, each.since] for each in self.lost]
        return cast("bytes", msgpack.packb([_FORMAT, self.oid.binary, self.generation, [self.count, lost]]))


def mark_id(scope: str, session: str, oid: ObjectID) -> ObjectID:
    """Return the ID of the mark beside an object of a session."""
    return ObjectID.derive(scope, session, f"{_KEY}{oid}")


def parse_mark(data: bytes) -> LostMark | None:
    """Parse a mark; None: it is something else."""
    if data[:1] != _BEGINS:
        return None
    try:
        form, oid, generation, (count, lost) = msgpack.unpackb(data)
        if form != _FORMAT:
            return None
        listed = tuple(_dependency(fields) for fields in lost)
        return LostMark(ObjectID(oid), int(generation), int(count), listed)
    except (ValueError, TypeError, InvalidArgument, msgpack.UnpackException):
        return None


def _dependency(fields: Sequence[Any]) -> LostDependency:
    oid, instance, host, since = fields
    return LostDependency(ObjectID(oid), str(instance), str(host), float(since))


def read_mark(raw: _core.Client, scope: str, session: str, oid: ObjectID, generation: int) -> LostMark | None:
    """Return the mark of this generation of an object; None: it is not marked. Reads shared memory only."""
    data = raw.get_small(mark_id(scope, session, oid).binary)
    mark = None if data is None else parse_mark(data)
    return mark if mark is not None and (mark.oid, mark.generation) == (oid, generation) else None


def recorded_mark(raw: _core.Client, candidate: ObjectID, place: tuple[str, str]) -> LostMark | None:
    """Return what an object of a session (scope and name) says if it is a mark; None: it is something else."""
    data = raw.get_small(candidate.binary)
    mark = None if data is None else parse_mark(data)
    return mark if mark is not None and mark_id(*place, mark.oid) == candidate else None
