"""Decides whether an output is checkpointed, by a rule's ``every`` and ``when``, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from entrepot.phrases import human_bytes

from entrepot_policy.checkpoints.checkpoint_cost import CostEstimate
from entrepot_policy.rules.match_target import Subject
from entrepot_policy.rules.model import CheckpointRule
from entrepot_policy.schema.limit import Limit


@dataclass(frozen=True)
class Decision:
    """Whether an output is checkpointed.

    Attributes:
        write: whether it is.
        rule: that decided; None: none matched.
        reason: for display.
    """

    write: bool
    rule: CheckpointRule | None
    reason: str

    @property
    def rule_location(self) -> str:
        """The rule as file and line; empty: none."""
        return "" if self.rule is None else self.rule.location.short


def decide(
    rule: CheckpointRule | None,
    subject: Subject,
    run_number: int,
    *,
    recompute: Callable[[], float],
    estimate: Callable[[], CostEstimate],
) -> Decision:
    """Decide whether a rule checkpoints an output.

    Args:
        rule: the first that matched.
        subject: the output, with its size.
        run_number: of the task, from 1 on; the first run is checkpointed, then every n-th.
        recompute: seconds that recomputing the value would take; called only if needed.
        estimate: costs, for ``auto``; called only if needed.
    """
    if rule is None:
        return Decision(False, None, "no rule matches")
    if rule.when.kind == "never":
        return Decision(False, rule, "the rule says never")
    if (run_number - 1) % rule.every:
        return Decision(False, rule, f"run {run_number} is skipped, every {rule.every}")
    if rule.when.kind == "auto":
        costs = estimate()
        return Decision(costs.pays, rule, f"expected costs {costs}")
    if rule.when.kind == "always":
        return Decision(True, rule, "always" if rule.every == 1 else f"run {run_number}, every {rule.every}")
    return _decide_by_limits(rule, subject, recompute)


def _decide_by_limits(rule: CheckpointRule, subject: Subject, recompute: Callable[[], float]) -> Decision:
    reasons: list[str] = []
    when = rule.when
    if when.size:
        if subject.nbytes is None:
            return Decision(False, rule, "its size is not known")
        if (violated := _first_violated(when.size, subject.nbytes)) is not None:
            return Decision(False, rule, f"its size is {human_bytes(subject.nbytes)}, not {violated.text}")
        reasons.append(f"its size is {human_bytes(subject.nbytes)}")
    if when.fan_out:
        if subject.fan_out is None:
            return Decision(False, rule, "the number of tasks that read it is not known")
        if (violated := _first_violated(when.fan_out, subject.fan_out)) is not None:
            return Decision(False, rule, f"{subject.fan_out} tasks read it, not {violated.text}")
        reasons.append(f"{subject.fan_out} tasks read it")
    if when.recompute_seconds:
        seconds = recompute()
        if (violated := _first_violated(when.recompute_seconds, seconds)) is not None:
            return Decision(False, rule, f"recomputing it takes {seconds:.3g} s, not {violated.text}")
        reasons.append(f"recomputing it takes {seconds:.3g} s")
    return Decision(True, rule, ", ".join(reasons) or "no condition")


def _first_violated(bounds: tuple[Limit, ...], number: float) -> Limit | None:
    return next((limit for limit in bounds if not limit.holds(number)), None)
