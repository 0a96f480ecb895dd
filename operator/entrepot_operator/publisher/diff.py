"""Plans the writes that bring the API to the desired state. Pure: does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from entrepot_operator.kubernetes.objects import GlobalObject, LocalObject

PublishedObject = LocalObject | GlobalObject


@dataclass(frozen=True)
class Write:
    """One request.

    Attributes:
        operation: ``"apply"`` the spec, its ``"status"``, or ``"drop"`` the whole resource.
        target: the desired object, or, for a drop, the last known one.
    """

    operation: Literal["apply", "status", "drop"]
    target: PublishedObject


def plan_writes(desired: Mapping[str, PublishedObject], existing: Mapping[str, PublishedObject]) -> list[Write]:
    """The writes that lead from the existing to the desired state, in order.

    Objects are written largest first, because pods wait for them; deletions are interleaved at the same rate, because
    stale objects attract pods to nodes without data; statuses come last, because nothing waits for them.

    Args:
        desired: by name in the API.
        existing: the same, as last read or written.
    """
    spec_writes = [
        Write("apply", published_object)
        for name, published_object in desired.items()
        if not _same_spec(published_object, existing.get(name))
    ]
    spec_writes.sort(key=lambda write: -write.target.bytes)
    deletions = [Write("drop", published_object) for name, published_object in existing.items() if name not in desired]
    deletions.sort(key=lambda write: -write.target.bytes)
    status_writes = [
        Write("status", published_object)
        for name, published_object in desired.items()
        if name in existing
        and _same_spec(published_object, existing[name])
        and not _same_status(published_object, existing[name])
    ]
    mixed = [write for pair in zip_longest(spec_writes, deletions) for write in pair if write is not None]
    return mixed + status_writes


def _same_spec(left: PublishedObject, right: PublishedObject | None) -> bool:
    return right is not None and type(left) is type(right) and left.spec() == right.spec()


def _same_status(left: PublishedObject, right: PublishedObject) -> bool:
    if isinstance(left, LocalObject) and isinstance(right, LocalObject):
        return left.state == right.state and left.available == right.available
    if isinstance(left, GlobalObject) and isinstance(right, GlobalObject):
        return left.complete == right.complete
    return False
