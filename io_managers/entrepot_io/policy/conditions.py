"""Decides whether an output is checkpointed, by a rule's ``every`` and ``when``, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from entrepot_io.describe import human_bytes
from entrepot_io.policy.costs import Estimate
from entrepot_io.policy.kinds import Bound
from entrepot_io.policy.model import CheckpointRule
from entrepot_io.policy.subject import Subject


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
    def by(self) -> str:
        """The rule as file and line; empty: none."""
        return "" if self.rule is None else self.rule.mark.short


def decide(
    rule: CheckpointRule | None,
    subject: Subject,
    run_number: int,
    *,
    recompute: Callable[[], float],
    estimate: Callable[[], Estimate],
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
        return Decision(False, None, "no rule matches it")
    if rule.when.kind == "never":
        return Decision(False, rule, "the rule says never")
    if (run_number - 1) % rule.every:
        return Decision(False, rule, f"run {run_number} is between every {rule.every}")
    if rule.when.kind == "auto":
        found = estimate()
        return Decision(found.pays, rule, f"expected costs {found}")
    if rule.when.kind == "always":
        return Decision(True, rule, "always" if rule.every == 1 else f"run {run_number}, every {rule.every}")
    return _by_bounds(rule, subject, recompute)


def _by_bounds(rule: CheckpointRule, subject: Subject, recompute: Callable[[], float]) -> Decision:
    said: list[str] = []
    when = rule.when
    if when.size:
        if subject.nbytes is None:
            return Decision(False, rule, "its size is not known")
        if (failed := _failing(when.size, subject.nbytes)) is not None:
            return Decision(False, rule, f"its size is {human_bytes(subject.nbytes)}, not {failed.text}")
        said.append(f"its size is {human_bytes(subject.nbytes)}")
    if when.fan_out:
        if subject.fan_out is None:
            return Decision(False, rule, "nobody knows how many tasks read it")
        if (failed := _failing(when.fan_out, subject.fan_out)) is not None:
            return Decision(False, rule, f"{subject.fan_out} tasks read it, not {failed.text}")
        said.append(f"{subject.fan_out} tasks read it")
    if when.recompute_seconds:
        seconds = recompute()
        if (failed := _failing(when.recompute_seconds, seconds)) is not None:
            return Decision(False, rule, f"making it again takes {seconds:.3g} s, not {failed.text}")
        said.append(f"making it again takes {seconds:.3g} s")
    return Decision(True, rule, ", ".join(said) or "no condition")


def _failing(bounds: tuple[Bound, ...], number: float) -> Bound | None:
    return next((one for one in bounds if not one.holds(number)), None)
