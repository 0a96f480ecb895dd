"""Reports of what the policy did, in a step's own log and in Dagster's metadata."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue
from entrepot_io.policy.events import Event

from entrepot_dagster.reasons import RULE

if TYPE_CHECKING:
    from dagster import DagsterLogManager
    from entrepot_io.policy.model import CheckpointRule

CHECKPOINT = "entrepot/checkpoint"
RECOVERED = "entrepot/recovered"
_LOUD = (
    "object_lost",
    "instance_lost",
    "daemon_lost",
    "store_full",
    "checkpoint_damaged",
    "checkpoint_failed",
    "checkpoint_abandoned",
    "gave_up",
)


class Ear:
    """Collects the events emitted by the listening thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def hear(self, event: Event) -> None:
        """Receive an event of a runtime's log."""
        heard: list[Event] | None = getattr(self._local, "heard", None)
        if heard is not None:
            heard.append(event)

    @contextmanager
    def listening(self) -> Iterator[list[Event]]:
        """Yield a list that collects this thread's events until the end of the block."""
        heard: list[Event] = []
        before = getattr(self._local, "heard", None)
        self._local.heard = heard
        try:
            yield heard
        finally:
            self._local.heard = before


def tell_write(
    log: DagsterLogManager, events: Sequence[Event], rule: CheckpointRule | None
) -> dict[str, MetadataValue[Any]]:
    """Log what happened when an output was written, and return it as metadata.

    Args:
        log: the step's log.
        events: what happened.
        rule: checkpoint rule of the output.
    """
    _log(log, events)
    told = [event for event in events if event.kind.startswith("checkpoint_") and event.kind != "checkpoint_pruned"]
    if told:
        last = told[-1]
        what = last.kind.removeprefix("checkpoint_")
        text, by = f"{what}: {last.text}", last.rule
    elif rule is not None and rule.mode == "async" and rule.targets:
        text, by = "put off: written behind", rule.mark.short
    else:
        return {}
    return {CHECKPOINT: MetadataValue.text(text), RULE: MetadataValue.text(by)}


def tell_read(log: DagsterLogManager, events: Sequence[Event]) -> dict[str, MetadataValue[Any]]:
    """Log what was done about a missing input, and return it as metadata."""
    _log(log, events)
    helped = [event for event in events if event.kind in ("reloaded", "reread", "retried", "recovered")]
    if not helped:
        return {}
    text = "; ".join(f"{event.kind}: {event.text}" for event in helped)
    return {RECOVERED: MetadataValue.text(text), RULE: MetadataValue.text(helped[-1].rule)}


def _log(log: DagsterLogManager, events: Sequence[Event]) -> None:
    for event in events:
        (log.warning if event.kind in _LOUD else log.info)(f"entrepot: {event}")
