"""A validated policy: rules in file order, each with its location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from entrepot_policy.rules.match_target import Subject
from entrepot_policy.rules.matching import Match
from entrepot_policy.rules.targets import Target, add_credentials
from entrepot_policy.schema.constants import (
    DEFAULT_BACKOFF_FACTOR,
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_EVENT_BYTES,
    DEFAULT_FAILURES_PER_DAY,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_BACKOFF_SECONDS,
    DEFAULT_MAX_TASKS,
    DEFAULT_QUEUE,
    DEFAULT_WAIT_SECONDS,
    Mode,
)
from entrepot_policy.schema.diagnostics import Location
from entrepot_policy.schema.limit import Limit


@dataclass(frozen=True)
class CheckpointCondition:
    """The condition of a checkpoint rule.

    Attributes:
        kind: ``"always"``, ``"never"``, ``"auto"``, or ``"bounds"``: all of the following hold.
        recompute_seconds, size, fan_out: bounds; empty: any.
    """

    kind: Literal["always", "never", "auto", "bounds"] = "always"
    recompute_seconds: tuple[Limit, ...] = ()
    size: tuple[Limit, ...] = ()
    fan_out: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class CheckpointRule:
    """One rule of ``checkpoint``.

    Attributes:
        location: its location.
        match: the outputs it applies to.
        every: only every n-th run of the task.
        when: its condition.
        mode: whether the task waits.
        keep: how many checkpoints of an output to keep; None: all.
        targets: the target and, after it, its fallbacks. Empty for ``never``.
    """

    location: Location
    match: Match
    every: int
    when: CheckpointCondition
    mode: Mode
    keep: int | None
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class MemoryRule:
    """One rule of ``memory``.

    Attributes:
        location: its location.
        match: the outputs it applies to.
        recompute: whether they may be dropped and recomputed.
    """

    location: Location
    match: Match
    recompute: bool


@dataclass(frozen=True)
class Step:
    """One step of a failover rule.

    Attributes:
        name: which step.
        attempts, delay, factor, max_delay: of a retry.
        reason: of a fail; empty: none given.
    """

    name: str
    attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: float = DEFAULT_BACKOFF_SECONDS
    factor: float = DEFAULT_BACKOFF_FACTOR
    max_delay: float = DEFAULT_MAX_BACKOFF_SECONDS
    reason: str = ""


@dataclass(frozen=True)
class FailoverRule:
    """One rule of ``failover``.

    Attributes:
        location: its location.
        events: the events it applies to.
        match: the subjects it applies to.
        steps: in order.
        max_attempts: how often to go through the steps.
        backoff, max_backoff: seconds before the second attempt, doubled each time, up to the maximum.
        max_tasks: limit on the tasks to rerun for one loss.
    """

    location: Location
    events: tuple[str, ...]
    match: Match
    steps: tuple[Step, ...]
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: float = DEFAULT_BACKOFF_SECONDS
    max_backoff: float = DEFAULT_MAX_BACKOFF_SECONDS
    max_tasks: int = DEFAULT_MAX_TASKS


@dataclass(frozen=True)
class EventSettings:
    """Settings of the event log.

    Attributes:
        enabled: whether there is one.
        folder: None: the default below the user's state directory.
        max_bytes: maximum size.
    """

    enabled: bool = True
    folder: str | None = None
    max_bytes: int = DEFAULT_EVENT_BYTES


@dataclass(frozen=True)
class Policy:
    """The content of one file, with the environment's overrides.

    Attributes:
        source: the file.
        digest: of its text and the overrides; two processes with the same digest decide alike.
        targets: by name.
        checkpoints: the rules.
        enabled: whether checkpoints are written; existing ones are read in any case.
        failover: the rules.
        queue: async: how many checkpoints may be pending in a process.
        wait_seconds: async: how long the end of a run waits.
        fail_on_error: whether a task fails if its sync checkpoint fails.
        failures_per_day: what ``auto`` assumes before any failure was observed.
        events: settings of the log.
        memory: rules on what may be dropped; the last one is the section's own ``recompute``.
        overhead: seconds that rerunning a task takes in addition to its own time; None: the orchestrator's default.
    """

    source: str
    digest: str
    targets: Mapping[str, Target] = field(default_factory=dict[str, Target])
    checkpoints: tuple[CheckpointRule, ...] = ()
    failover: tuple[FailoverRule, ...] = ()
    enabled: bool = True
    queue: int = DEFAULT_QUEUE
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    fail_on_error: bool = False
    failures_per_day: float = DEFAULT_FAILURES_PER_DAY
    events: EventSettings = field(default_factory=EventSettings)
    memory: tuple[MemoryRule, ...] = ()
    overhead: float | None = None

    def checkpoint_rule(self, subject: Subject) -> CheckpointRule | None:
        """The first rule that matches an output; None: none does, or checkpoints are disabled."""
        if not self.enabled:
            return None
        return next((rule for rule in self.checkpoints if rule.match.matches(subject)), None)

    def memory_rule(self, subject: Subject) -> MemoryRule | None:
        """The first rule of ``memory`` that matches an output; None: there are none."""
        return next((rule for rule in self.memory if rule.match.matches(subject)), None)

    def failover_rule(self, event: str, subject: Subject) -> FailoverRule | None:
        """The first rule for an event that matches; None: none does."""
        return next((rule for rule in self.failover if event in rule.events and rule.match.matches(subject)), None)

    def all_targets(self) -> tuple[Target, ...]:
        """Every target that a rule names, without duplicates, in rule order."""
        by_template: dict[str, Target] = {}
        for rule in self.checkpoints:
            for target in rule.targets:
                by_template.setdefault(target.template, target)
        return tuple(by_template.values())

    def credential_names(self) -> frozenset[str]:
        """Names of credentials that targets still lack."""
        return frozenset(target.credentials for target in self.targets.values() if target.credentials is not None)

    def with_credentials(self, credentials: Mapping[str, Any]) -> Policy:
        """Return this policy with the options that its targets' credentials are.

        Args:
            credentials: the orchestrator's, by name.

        Raises:
            PolicyError: a target names others.
        """
        return replace(
            self,
            targets={name: add_credentials(target, credentials) for name, target in self.targets.items()},
            checkpoints=tuple(
                replace(rule, targets=tuple(add_credentials(target, credentials) for target in rule.targets))
                for rule in self.checkpoints
            ),
        )
