"""Semantic checks: rules that contradict each other or themselves, and targets that cannot be written."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from entrepot.errors import EntrepotError

from entrepot_io.policy.definition import STEPS_OF
from entrepot_io.policy.kinds import Problems
from entrepot_io.policy.matching import empty_range
from entrepot_io.policy.model import CheckpointRule, FailoverRule, MemoryRule, Policy
from entrepot_io.policy.problems import Problem
from entrepot_io.policy.sections import Said
from entrepot_io.policy.targets import Target, template_problem


def target_problem(url: str) -> str:
    """Why a target's template is unusable; empty: it is usable."""
    return template_problem(url)


def check(policy: Policy, said: Said, problems: Problems) -> None:
    """Report contradictions.

    Args:
        policy: the policy as constructed.
        said: the parsed sections it was constructed from.
        problems: added to.
    """
    checkpoint: Said | None = said.get("checkpoint")
    rules: tuple[Said, ...] = () if checkpoint is None else checkpoint.get("rules", ())
    for index, rule in enumerate(policy.checkpoints):
        _check_rule(rule, rules[index], problems)
        _check_hidden(rule, policy.checkpoints[:index], problems)
    _check_memory(policy, said.get("memory"), problems)
    for index, one in enumerate(policy.failover):
        _check_steps(one, problems)
        _check_hidden_events(one, policy.failover[:index], problems)
        if not rules and any(step.name == "reload_checkpoint" for step in one.steps):
            problems.append(
                Problem(
                    one.mark,
                    "the step reload_checkpoint finds nothing, because the policy has no rules for checkpoints: "
                    "add 'checkpoint', or leave the step out",
                )
            )


def probe(targets: Iterable[Target]) -> list[Problem]:
    """Try to write, read and remove a small file below the base of each target.

    Returns:
        A problem for each failure, with the driver's error: no credentials, no permission, no such bucket, a full disk.
    """
    from entrepot_io.checkpoints.chunks import SHARED
    from entrepot_io.checkpoints.places import open_place

    problems: list[Problem] = []
    for target in targets:
        name = f"{SHARED}/probe-{secrets.token_hex(8)}"
        try:
            place = open_place(target.base, target.options)
            place.write(name, b"entrepot")
            if place.read(name) != b"entrepot":
                problems.append(Problem(target.mark, f"what is written to {target.base} is not what is read back"))
            place.remove(name)
        except EntrepotError as error:
            problems.append(Problem(target.mark, f"checkpoints cannot be written there: {error}"))
        except FileNotFoundError:
            problems.append(Problem(target.mark, f"what was just written to {target.base} is not there"))
    return problems


def _check_rule(rule: CheckpointRule, said: Said, problems: Problems) -> None:
    if rule.when.kind == "never":
        for key in ("every", "mode", "keep", "target"):
            if key in said.values:
                problems.append(
                    Problem(said.at(key), f"this rule says 'when: never', so {key!r} contradicts it: leave one out")
                )
    ranges = (
        ("match", rule.match.size),
        ("when", rule.when.recompute_seconds),
        ("when", rule.when.size),
        ("when", rule.when.fan_out),
    )
    for key, bounds in ranges:
        if bounds and empty_range(bounds):
            problems.append(Problem(said.at(key), f"no number keeps {_all(bounds)}: this rule would never hold"))
    both = rule.match.size + rule.when.size
    if rule.when.size and rule.match.size and empty_range(both) and not empty_range(rule.when.size):
        problems.append(
            Problem(said.at("when"), f"the rule's match and its condition together are {_all(both)}: no size is both")
        )


def _check_memory(policy: Policy, said: Said | None, problems: Problems) -> None:
    if said is None:
        return
    for index, rule in enumerate(policy.memory):
        written = index < len(policy.memory) - 1
        if written and rule.match.size and empty_range(rule.match.size):
            problems.append(Problem(rule.mark, f"no number keeps {_all(rule.match.size)}: this rule would never hold"))
        if written or "recompute" in said.values:  # the section's own setting counts only if it is explicit
            _check_hidden(rule, policy.memory[:index], problems)
        if rule.recompute:
            _check_made_again(rule, policy.failover, problems)
    if not any(rule.recompute for rule in policy.memory):
        for key in said.values.keys() & {"overhead"}:
            problems.append(Problem(said.at(key), f"nothing here says 'recompute: auto', so {key!r} does nothing"))


def _check_made_again(rule: MemoryRule, failover: tuple[FailoverRule, ...], problems: Problems) -> None:
    """Dropped values must be restorable: the rule that applies to their loss must not prevent that."""
    for one in failover:
        if "object_dropped" not in one.events or not one.match.hides(rule.match):
            continue
        if not any(step.name == "rerun_upstream" for step in one.steps):
            problems.append(
                Problem(
                    rule.mark,
                    f"'recompute: auto' lets values be dropped that the rule at {one.mark} does not have made again: "
                    "give it the step rerun_upstream, or say 'recompute: never'",
                )
            )
        return


def _check_hidden(
    rule: CheckpointRule | MemoryRule, earlier: Sequence[CheckpointRule | MemoryRule], problems: Problems
) -> None:
    for before in earlier:
        if before.match.hides(rule.match):
            problems.append(
                Problem(
                    rule.mark,
                    f"this rule never decides: all that it matches ({rule.match}) is decided by the rule at "
                    f"{before.mark} ({before.match}), because the first match wins: put it before that one",
                )
            )
            return


def _check_steps(rule: FailoverRule, problems: Problems) -> None:
    seen: set[str] = set()
    ended = False
    for step in rule.steps:
        if ended:
            problems.append(Problem(rule.mark, f"the step {step.name} is after 'fail', and never taken"))
            return
        if step.name in seen:
            problems.append(Problem(rule.mark, f"the step {step.name} is here twice: once is enough"))
        for event in rule.events:
            if step.name not in STEPS_OF[event]:
                can = ", ".join(STEPS_OF[event])
                problems.append(Problem(rule.mark, f"{step.name} does nothing about {event}; what can is {can}"))
        if step.name == "retry" and step.max_delay < step.delay:
            problems.append(
                Problem(rule.mark, f"a retry waits {step.delay:g} s and at most {step.max_delay:g} s: that contradicts")
            )
        seen.add(step.name)
        ended = step.name == "fail"


def _check_hidden_events(rule: FailoverRule, earlier: tuple[FailoverRule, ...], problems: Problems) -> None:
    for event in rule.events:
        for before in earlier:
            if event in before.events and before.match.hides(rule.match):
                problems.append(
                    Problem(
                        rule.mark,
                        f"for {event} this rule never decides: all that it matches ({rule.match}) is decided by the "
                        f"rule at {before.mark}, because the first match wins",
                    )
                )
                break


def _all(bounds: Iterable[object]) -> str:
    return " and ".join(getattr(one, "text", str(one)) for one in bounds)
