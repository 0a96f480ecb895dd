"""Plans the writes that bring the API to the desired state. Pure: does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from entrepot_io.cluster.objects import GlobalObject, LocalObject

Published = LocalObject | GlobalObject


@dataclass(frozen=True)
class Write:
    """One request.

    Attributes:
        verb: ``"apply"`` the spec, its ``"status"``, or ``"drop"`` the whole resource.
        what: the desired object, or, for a drop, the last known one.
    """

    verb: Literal["apply", "status", "drop"]
    what: Published


def plan(wanted: Mapping[str, Published], known: Mapping[str, Published]) -> list[Write]:
    """The writes that lead from the known to the desired state, in order.

    Objects are written largest first, because pods wait for them; deletions are interleaved at the same rate, because
    stale objects attract pods to nodes without data; statuses come last, because nothing waits for them.

    Args:
        wanted: by name in the API.
        known: the same, as last read or written.
    """
    applied = [Write("apply", one) for name, one in wanted.items() if not _same_spec(one, known.get(name))]
    applied.sort(key=lambda write: -write.what.bytes)
    dropped = [Write("drop", one) for name, one in known.items() if name not in wanted]
    dropped.sort(key=lambda write: -write.what.bytes)
    told = [
        Write("status", one)
        for name, one in wanted.items()
        if name in known and _same_spec(one, known[name]) and not _same_status(one, known[name])
    ]
    mixed = [write for pair in zip_longest(applied, dropped) for write in pair if write is not None]
    return mixed + told


def _same_spec(one: Published, other: Published | None) -> bool:
    return other is not None and type(one) is type(other) and one.spec() == other.spec()


def _same_status(one: Published, other: Published) -> bool:
    if isinstance(one, LocalObject) and isinstance(other, LocalObject):
        return one.state == other.state and one.available == other.available
    if isinstance(one, GlobalObject) and isinstance(other, GlobalObject):
        return one.complete == other.complete
    return False
