"""Pods held until the objects that they require exist. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.objects import parse_time
from entrepot_operator.placement.injection.injector import required_object_ids
from entrepot_operator.placement.names import GATE, GATE_TIMEOUT
from entrepot_operator.placement.warnings import summarize_names

DEFAULT_TIMEOUT_SECONDS = 600.0
MAX_TIMEOUT_SECONDS = 365 * 86400.0
_DURATION = re.compile(r"(\d{1,9})\s*(s|min|h|d)?")
_UNITS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class GatedPod:
    """A pod with our gate.

    Attributes:
        namespace, name, uid: which pod.
        ids: the objects that it waits for.
        deadline: when it is released regardless.
        timeout_seconds: that time relative to its creation.
        problem: why its annotations are invalid; empty: they are valid.
    """

    namespace: str
    name: str
    uid: str
    ids: tuple[str, ...]
    deadline: datetime
    timeout_seconds: float
    problem: str = ""

    @property
    def key(self) -> str:
        """Its name, with its namespace."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class EventRecord:
    """An event.

    Attributes:
        type: ``"Normal"`` or ``"Warning"``.
        reason: machine-readable, in CamelCase.
        message: human-readable.
        dedup_key: distinguishes it from earlier events; two equal ones are reported once.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    dedup_key: str = ""


@dataclass(frozen=True)
class GateDecision:
    """The decision about a held pod.

    Attributes:
        lift: whether to remove the gate.
        events: events to report.
        retry_seconds: seconds until the next check, if nothing happens before; 0: not needed.
    """

    lift: bool
    events: tuple[EventRecord, ...]
    retry_seconds: float = 0.0


def parse_gated_pod(resource: Mapping[str, Any]) -> GatedPod | None:
    """The relevant part of a pod; None: it does not have our gate, or is being deleted."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or []]
    if GATE not in gates or metadata.get("deletionTimestamp"):
        return None
    problem, timeout_seconds = "", DEFAULT_TIMEOUT_SECONDS
    ids: tuple[str, ...] = ()
    try:
        timeout_seconds = _parse_timeout((metadata.get("annotations") or {}).get(GATE_TIMEOUT))
        ids = tuple(map(sys.intern, required_object_ids(resource)))
    except InvalidArgument as error:
        problem = str(error)
    created = parse_time(metadata.get("creationTimestamp")) or datetime.fromtimestamp(0, timezone.utc)
    deadline = created + timedelta(seconds=timeout_seconds)
    return GatedPod(
        str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"]), ids, deadline, timeout_seconds, problem
    )


def decide(pod: GatedPod, locations: Mapping[str, Mapping[str, int]], now: datetime) -> GateDecision:
    """Decide whether to keep holding a pod.

    It is released when everything that it requires is on some live node, when its timeout expires, or when its
    requirements are invalid: it is never held forever.

    Args:
        pod: with our gate.
        locations: of the objects that it waits for; unknown ones are omitted, lost ones have no nodes.
        now: by the API server's clock.
    """
    if pod.problem:
        return GateDecision(
            True, (EventRecord("Warning", "ObjectsNotUnderstood", f"the gate is lifted: {pod.problem}"),)
        )
    unknown = [object_id for object_id in pod.ids if object_id not in locations]
    lost = [object_id for object_id in pod.ids if object_id in locations and not locations[object_id]]
    if not unknown and not lost:
        text = f"all {len(pod.ids)} required objects are available" if pod.ids else "no objects are required"
        return GateDecision(True, (EventRecord("Normal", "ObjectsAvailable", text),))
    missing = "; ".join(
        text
        for text, object_ids in (
            (f"not published: {summarize_names(unknown)}", unknown),
            (f"lost: {summarize_names(lost)}", lost),
        )
        if object_ids
    )
    if now >= pod.deadline:
        text = (
            f"the gate is lifted after {pod.timeout_seconds:g} s; the pod runs without its required objects: {missing}"
        )
        return GateDecision(True, (EventRecord("Warning", "ObjectsTimedOut", text),))
    events = [
        EventRecord(
            "Normal",
            "WaitingForObjects",
            f"waiting for {len(unknown) + len(lost)} of {len(pod.ids)} objects: {missing}",
        )
    ]
    if lost:
        events.append(
            EventRecord(
                "Warning", "ObjectsLost", f"no store holds {summarize_names(lost)} any more", ",".join(sorted(lost))
            )
        )
    return GateDecision(False, tuple(events), max(0.1, (pod.deadline - now).total_seconds()))


def gate_removal_patch(resource: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that removes only our gate from a pod; empty: it has none."""
    gates = (resource.get("spec") or {}).get("schedulingGates") or []
    for index, gate in enumerate(gates):
        if gate.get("name") == GATE:
            path = f"/spec/schedulingGates/{index}"
            return [{"op": "test", "path": f"{path}/name", "value": GATE}, {"op": "remove", "path": path}]
    return []


def _parse_timeout(text: Any) -> float:
    if text is None:
        return DEFAULT_TIMEOUT_SECONDS
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise InvalidArgument(f"annotation {GATE_TIMEOUT} must be a duration such as 90s, 10min or 2h, not {text!r}")
    return min(float(int(match.group(1)) * _UNITS[match.group(2)]), MAX_TIMEOUT_SECONDS)
