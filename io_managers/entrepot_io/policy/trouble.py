"""One read or write that failed: what is known of it, and how it is told."""

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
    (("task_failed",), ("fail",)),  # the host has retries of its own
)
DEFAULT_RULES = {
    event: FailoverRule(Mark("default"), (event,), Match(), tuple(Step(name) for name in steps))
    for events, steps in _DEFAULTS
    for event in events
}


@dataclass
class Trouble:
    """One read or write that failed, and what was done about it.

    Attributes:
        event: what happened.
        subject: the task that made the value, or that writes it.
        ref: the value; None for one that is being written.
        open_store: its session, connected anew if need be.
        first: the error that began it.
        copy: how the value is to be read.
        tried: what was done, in words.
        damaged: URLs of checkpoints that turned out to be so.
        may_pass: whether something failed in this attempt that may go better in the next.
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
        """Note what came of a step."""
        self.tried.append(f"{step}: {what}")

    def tell(self, log: EventLog, kind: str, rule: FailoverRule, **said: Any) -> None:
        """Write an event about it down."""
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
        """What ends it: the first error, with all that was tried.

        Args:
            log: told of it.
            rule: that decided.
            reason: in words; empty: no step helped.
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
    """Ends all steps of all troubles within each other; carries what the caller gets."""

    def __init__(self, error: EntrepotError) -> None:
        super().__init__(str(error))
        self.error = error
