"""One failed read or write: what is known about it, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode
from entrepot.errors import EntrepotError

from entrepot_policy.rules.match_target import Subject
from entrepot_policy.rules.matching import Match
from entrepot_policy.rules.model import FailoverRule, Step
from entrepot_policy.schema.diagnostics import Location
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import ObjectRef

if TYPE_CHECKING:
    from entrepot import Store

_DEFAULTS = (
    (("object_lost", "object_dropped", "instance_lost"), ("reload_checkpoint", "reread_durable", "rerun_upstream")),
    (("daemon_lost",), ("retry",)),
    (("store_full",), ("evict", "retry")),
    (("task_failed",), ("fail",)),  # the orchestrator has retries of its own
)
DEFAULT_RULES = {
    event: FailoverRule(Location("default"), (event,), Match(), tuple(Step(name) for name in steps))
    for events, steps in _DEFAULTS
    for event in events
}


@dataclass
class Incident:
    """One failed read or write, and what was done about it.

    Attributes:
        event: what happened.
        subject: the task that made the value, or that writes it.
        ref: the value; None for one that is being written.
        open_store: its session, reconnected if necessary.
        original_error: the original error.
        copy: how the value is to be read.
        tried: descriptions of what was done.
        damaged: URLs of checkpoints found to be damaged.
        retryable: whether something in this attempt failed that may succeed in the next.
    """

    event: str
    subject: Subject
    ref: ObjectRef | None
    open_store: Callable[[], Store]
    original_error: EntrepotError
    copy: CopyMode = "never"
    tried: list[str] = field(default_factory=list[str])
    damaged: set[str] = field(default_factory=set[str])
    retryable: bool = False

    def record_outcome(self, step: str, outcome: object) -> None:
        """Record the outcome of a step."""
        self.tried.append(f"{step}: {outcome}")

    def log_event(self, log: EventLog, kind: str, rule: FailoverRule, **fields: Any) -> None:
        """Write an event about it to the log."""
        ref = self.ref
        log.add(
            kind,
            of=self.subject.task,
            object="" if ref is None else str(ref.id),
            key=self.subject.key if ref is None else ref.key,
            rule=rule.location.short,
            **fields,
        )

    def give_up(self, log: EventLog, rule: FailoverRule, reason: str, cause: Exception | None = None) -> StopRecovery:
        """Give up: the exception that ends it, with the first error and all that was tried.

        Args:
            log: receives the event.
            rule: that decided.
            reason: for display; empty: no step helped.
            cause: of the error; None: the first error.
        """
        tried = "; ".join(self.tried) or "nothing"
        prefix = f"{reason}. " if reason else ""
        text = f"{prefix}{self.original_error} (policy {rule.location.short} on {self.event}; tried: {tried})"
        self.log_event(log, "gave_up", rule, text=text)
        error = type(self.original_error)(text)
        error.__cause__ = cause or self.original_error
        return StopRecovery(error)


class StopRecovery(Exception):
    """Ends all steps of all nested incidents; carries the caller's error."""

    def __init__(self, error: EntrepotError) -> None:
        super().__init__(str(error))
        self.error = error
