"""What has to be written so that the API has what is wanted. Pure: nothing is asked, nothing is sent."""

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
        what: the object, as it is wanted, or as it was known where it is dropped.
    """

    verb: Literal["apply", "status", "drop"]
    what: Published


def plan(wanted: Mapping[str, Published], known: Mapping[str, Published]) -> list[Write]:
    """The writes that lead from what is known to what is wanted, in their order.

    Objects come largest first, because pods wait for them; what is gone goes at the same rate, because it draws pods to
    where nothing is; statuses come last, because nobody waits for these.

    Args:
        wanted: by name in the API.
        known: the same, as it was read or written last.
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
