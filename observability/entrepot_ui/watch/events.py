"""What happened in a store, from the differences between two of its statuses: the store itself records no events."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from entrepot._cli.common import human_bytes
from entrepot.phrases import count_of

Status = dict[str, Any]
MAX_EVENTS = 500


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened between two looks.

    Attributes:
        number: counts up from 1.
        at: seconds since 1970, when it was noticed.
        kind: such as ``"evicted"``.
        text: for people.
        alert: something that a user may have to act on.
    """

    number: int
    at: float
    kind: str
    text: str
    alert: bool

    def to_json(self) -> dict[str, Any]:
        """What the page gets."""
        return asdict(self)


class EventLog:
    """The latest events. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)  # guarded by _lock, as the next
        self._number = 0

    def add(self, kind: str, text: str, *, alert: bool = False) -> None:
        """Add an event that happened now."""
        with self._lock:
            self._number += 1
            self._events.append(Event(self._number, time.time(), kind, text, alert))

    def after(self, number: int) -> list[Event]:
        """The events with higher numbers, oldest first; what is older than the latest ``MAX_EVENTS`` is gone."""
        with self._lock:
            return [event for event in self._events if event.number > number]


def compare(before: Status, after: Status) -> list[tuple[str, str, bool]]:
    """What happened between two statuses: kind, text and whether it is an alert, of each event."""
    if before["instance"] != after["instance"]:
        text = f"another store is at this address now: {after['instance']}; what the former one held is gone"
        return [("replaced", text, True)]
    events: list[tuple[str, str, bool]] = []
    restarted = before["incarnation"] != after["incarnation"] or before["pid"] != after["pid"]
    if restarted:
        lost = after["lost_on_adoption"]["objects"]
        kept = f"{count_of(lost, 'object')} lost" if lost else "no object was lost"
        events.append(("failover", f"daemon {before['pid']} was followed by {after['pid']}: {kept}", True))
    zero: Status = {"spill": {}, "drops": 0, "drops_bytes": 0, "log_lines_dropped": 0}
    # The counters of a new daemon begin at 0.
    events += _counted(zero if restarted else before, after)
    if (was := before["gateway"]["serves"]) != (serves := after["gateway"]["serves"]):
        text = "the gateway to other hosts serves" if serves else "the gateway to other hosts does not serve any more"
        events.append(("gateway", text, was))
    for part, note in (("memory", after["provision_note"]), ("spilling", after["spill"].get("note", ""))):
        former = before["provision_note"] if part == "memory" else before["spill"].get("note", "")
        if note and note != former:
            events.append(("note", f"{part}: {note}", True))
    return events


def _counted(before: Status, after: Status) -> list[tuple[str, str, bool]]:
    old, new = before["spill"], after["spill"]

    def more(key: str) -> int:
        return max(0, int(new.get(key, 0)) - int(old.get(key, 0)))

    events: list[tuple[str, str, bool]] = []
    if count := more("evictions"):
        moved = human_bytes(more("evicted_bytes"))
        events.append(("evicted", f"{count_of(count, 'object')} of {moved} moved out of memory", False))
    if nbytes := more("written_bytes"):
        events.append(("spilled", f"{human_bytes(nbytes)} written to disk", False))
    if count := more("loads"):
        ahead = more("loads_ahead")
        text = f"{count_of(count, 'object')} of {human_bytes(more('loaded_bytes'))} reloaded from disk"
        events.append(("reloaded", f"{text}, {ahead} of them ahead of a get" if ahead else text, False))
    if count := max(0, after["drops"] - before["drops"]):
        nbytes = max(0, after["drops_bytes"] - before["drops_bytes"])
        events.append(("dropped", f"{count_of(count, 'object')} of {human_bytes(nbytes)} dropped", False))
    for key, what in (("failed_writes", "write"), ("failed_reads", "read")):
        if count := more(key):
            events.append(("disk", f"{count_of(count, what)} of spill files failed", True))
    if count := max(0, after["log_lines_dropped"] - before["log_lines_dropped"]):
        events.append(("log", f"the daemon's log could not take {count_of(count, 'line')}", True))
    return events
