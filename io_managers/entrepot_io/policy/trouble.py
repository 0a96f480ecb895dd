"""One failed read or write: what is known about it, and how it is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.codec import CopyMode
from entrepot.errors import EntrepotError

from entrepot_io.policy.events import EventLog
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.matching import Match
from entrepot_io.policy.model import FailoverRule, Step
from entrepot_io.policy.problems import Mark
from entrepot_io.policy.subject import Subject

if TYPE_CHECKING:
    from entrepot import Store

_DEFAULTS = (
    (("object_lost", "object_dropped", "instance_lost"), ("reload_checkpoint", "reread_durable", "rerun_upstream")),
    (("daemon_lost",), ("retry",)),
    (("store_full",), ("evict", "retry")),
    (("task_failed",), ("fail",)),  # the orchestrator has retries of its own
)
DEFAULT_RULES = {
    event: FailoverRule(Mark("default"), (event,), Match(), tuple(Step(name) for name in steps))
    for events, steps in _DEFAULTS
    for event in events
}


@dataclass
class Trouble:
    """One failed read or write, and what was done about it.

    Attributes:
        event: what happened.
        subject: the task that made the value, or that writes it.
        ref: the value; None for one that is being written.
        open_store: its session, reconnected if necessary.
        first: the original error.
        copy: how the value is to be read.
        tried: descriptions of what was done.
        damaged: URLs of checkpoints found to be damaged.
        may_pass: whether something in this attempt failed that may succeed in the next.
    """

    event: str
    subject: Subject
    ref: ObjectRef | None
    open_store: Callable[[], Store]
    first: EntrepotError
    copy: CopyMode = "never"
    tried: list[str] = field(default_factory=list[str])
    damaged: set[str] = field(default_factory=set[str])
    may_pass: bool = False

    def note(self, step: str, what: object) -> None:
        """Record the outcome of a step."""
        self.tried.append(f"{step}: {what}")

    def tell(self, log: EventLog, kind: str, rule: FailoverRule, **said: Any) -> None:
        """Write an event about it to the log."""
        ref = self.ref
        log.add(
            kind,
            of=self.subject.task,
            object="" if ref is None else str(ref.id),
            key=self.subject.key if ref is None else ref.key,
            rule=rule.mark.short,
            **said,
        )

    def given_up(self, log: EventLog, rule: FailoverRule, reason: str, cause: Exception | None = None) -> Final:
        """Give up: the exception that ends it, with the first error and all that was tried.

        Args:
            log: receives the event.
            rule: that decided.
            reason: for display; empty: no step helped.
            cause: of the error; None: the first error.
        """
        tried = "; ".join(self.tried) or "nothing"
        said = f"{reason}. " if reason else ""
        text = f"{said}{self.first} (policy {rule.mark.short} on {self.event}; tried: {tried})"
        self.tell(log, "gave_up", rule, text=text)
        error = type(self.first)(text)
        error.__cause__ = cause or self.first
        return Final(error)


class Final(Exception):
    """Ends all steps of all nested troubles; carries the caller's error."""

    def __init__(self, error: EntrepotError) -> None:
        super().__init__(str(error))
        self.error = error
