"""Reports of what the policy did, in a step's own log and in Dagster's metadata."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue
from entrepot_policy.state.events import Event

from entrepot_dagster.policy.failures import RULE
from entrepot_dagster.values.output_facts import CHECKPOINT

if TYPE_CHECKING:
    from dagster import DagsterLogManager
    from entrepot_policy.rules.model import CheckpointRule

RECOVERED = "entrepot/recovered"
_WARNING_KINDS = (
    "object_lost",
    "instance_lost",
    "daemon_lost",
    "store_full",
    "checkpoint_damaged",
    "checkpoint_failed",
    "checkpoint_abandoned",
    "gave_up",
)


class EventCollector:
    """Collects the events emitted by the listening thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def add(self, event: Event) -> None:
        """Receive an event of a runtime's log."""
        events: list[Event] | None = getattr(self._local, "events", None)
        if events is not None:
            events.append(event)

    @contextmanager
    def collect(self) -> Iterator[list[Event]]:
        """Yield a list that collects this thread's events until the end of the block."""
        events: list[Event] = []
        previous = getattr(self._local, "events", None)
        self._local.events = events
        try:
            yield events
        finally:
            self._local.events = previous


def report_write(
    log: DagsterLogManager, events: Sequence[Event], rule: CheckpointRule | None
) -> dict[str, MetadataValue[Any]]:
    """Log what happened when an output was written, and return it as metadata.

    Args:
        log: the step's log.
        events: what happened.
        rule: checkpoint rule of the output.
    """
    _log_events(log, events)
    checkpoint_events = [
        event for event in events if event.kind.startswith("checkpoint_") and event.kind != "checkpoint_pruned"
    ]
    if checkpoint_events:
        last = checkpoint_events[-1]
        outcome = last.kind.removeprefix("checkpoint_")
        text, rule_name = f"{outcome}: {last.text}", last.rule
    elif rule is not None and rule.mode == "async" and rule.targets:
        text, rule_name = "pending: written in the background", rule.location.short
    else:
        return {}
    return {CHECKPOINT: MetadataValue.text(text), RULE: MetadataValue.text(rule_name)}


def report_read(log: DagsterLogManager, events: Sequence[Event]) -> dict[str, MetadataValue[Any]]:
    """Log what was done about a missing input, and return it as metadata."""
    _log_events(log, events)
    recovery_events = [event for event in events if event.kind in ("reloaded", "reread", "retried", "recovered")]
    if not recovery_events:
        return {}
    text = "; ".join(f"{event.kind}: {event.text}" for event in recovery_events)
    return {RECOVERED: MetadataValue.text(text), RULE: MetadataValue.text(recovery_events[-1].rule)}


def _log_events(log: DagsterLogManager, events: Sequence[Event]) -> None:
    for event in events:
        (log.warning if event.kind in _WARNING_KINDS else log.info)(f"entrepot: {event}")
