"""Pods held until the objects that they require exist. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from entrepot.errors import InvalidArgument
from entrepot_io.cluster.objects import moment
from entrepot_io.placement.injecting import needed
from entrepot_io.placement.names import GATE, GATE_TIMEOUT
from entrepot_io.placement.reasons import some

DEFAULT_SECONDS = 600.0
LONGEST_SECONDS = 365 * 86400.0
_DURATION = re.compile(r"(\d{1,9})\s*(s|min|h|d)?")
_UNITS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class GatedPod:
    """A pod with our gate.

    Attributes:
        namespace, name, uid: which pod.
        ids: the objects that it waits for.
        until: when it is released regardless.
        seconds: that time relative to its creation.
        problem: why its annotations are invalid; empty: they are valid.
    """

    namespace: str
    name: str
    uid: str
    ids: tuple[str, ...]
    until: datetime
    seconds: float
    problem: str = ""

    @property
    def key(self) -> str:
        """Its name, with its namespace."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Told:
    """An event.

    Attributes:
        type: ``"Normal"`` or ``"Warning"``.
        reason: machine-readable, in CamelCase.
        message: human-readable.
        once: distinguishes it from earlier events; two equal ones are reported once.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    once: str = ""


@dataclass(frozen=True)
class Decision:
    """The decision about a held pod.

    Attributes:
        lift: whether to remove the gate.
        told: events to report.
        again: seconds until the next check, if nothing happens before; 0: not needed.
    """

    lift: bool
    told: tuple[Told, ...]
    again: float = 0.0


def gated(resource: Mapping[str, Any]) -> GatedPod | None:
    """The relevant part of a pod; None: it does not have our gate, or is being deleted."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    gates = [one.get("name") for one in spec.get("schedulingGates") or []]
    if GATE not in gates or metadata.get("deletionTimestamp"):
        return None
    problem, seconds = "", DEFAULT_SECONDS
    ids: tuple[str, ...] = ()
    try:
        seconds = _seconds((metadata.get("annotations") or {}).get(GATE_TIMEOUT))
        ids = tuple(map(sys.intern, needed(resource)))
    except InvalidArgument as error:
        problem = str(error)
    made = moment(metadata.get("creationTimestamp")) or datetime.fromtimestamp(0, timezone.utc)
    until = made + timedelta(seconds=seconds)
    return GatedPod(
        str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"]), ids, until, seconds, problem
    )


def decide(pod: GatedPod, locations: Mapping[str, Mapping[str, int]], now: datetime) -> Decision:
    """Decide whether to keep holding a pod.

    It is released when everything that it requires is on some live node, when its timeout expires, or when its
    requirements are invalid: it is never held forever.

    Args:
        pod: with our gate.
        locations: of the objects that it waits for; unknown ones are omitted, lost ones have no nodes.
        now: by the API server's clock.
    """
    if pod.problem:
        return Decision(True, (Told("Warning", "ObjectsNotUnderstood", f"the gate is lifted: {pod.problem}"),))
    unknown = [one for one in pod.ids if one not in locations]
    lost = [one for one in pod.ids if one in locations and not locations[one]]
    if not unknown and not lost:
        text = f"all {len(pod.ids)} required objects are there" if pod.ids else "no objects are required"
        return Decision(True, (Told("Normal", "ObjectsAvailable", text),))
    missing = "; ".join(
        text for text, which in ((f"not published: {some(unknown)}", unknown), (f"lost: {some(lost)}", lost)) if which
    )
    if now >= pod.until:
        text = f"the gate is lifted after {pod.seconds:g} s, and the pod runs without what it requires: {missing}"
        return Decision(True, (Told("Warning", "ObjectsTimedOut", text),))
    told = [
        Told(
            "Normal",
            "WaitingForObjects",
            f"{len(unknown) + len(lost)} of {len(pod.ids)} objects are awaited: {missing}",
        )
    ]
    if lost:
        told.append(Told("Warning", "ObjectsLost", f"no store holds {some(lost)} any more", ",".join(sorted(lost))))
    return Decision(False, tuple(told), max(0.1, (pod.until - now).total_seconds()))


def lifting(resource: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that removes only our gate from a pod; empty: it has none."""
    gates = (resource.get("spec") or {}).get("schedulingGates") or []
    for place, one in enumerate(gates):
        if one.get("name") == GATE:
            path = f"/spec/schedulingGates/{place}"
            return [{"op": "test", "path": f"{path}/name", "value": GATE}, {"op": "remove", "path": path}]
    return []


def _seconds(text: Any) -> float:
    if text is None:
        return DEFAULT_SECONDS
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise InvalidArgument(f"annotation {GATE_TIMEOUT} is a time such as 90s, 10min or 2h, not {text!r}")
    return min(float(int(match.group(1)) * _UNITS[match.group(2)]), LONGEST_SECONDS)
