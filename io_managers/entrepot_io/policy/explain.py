"""Explains what a policy would do about a task: ``entrepot policy explain``."""

from __future__ import annotations

from entrepot_io.policy.definition import EVENTS
from entrepot_io.policy.model import CheckpointRule, FailoverRule, Policy, Step, When
from entrepot_io.policy.subject import Subject
from entrepot_io.policy.targets import PLACEHOLDERS
from entrepot_io.policy.trouble import DEFAULT_RULES


def explain(policy: Policy, subject: Subject) -> list[str]:
    """Lines of text to print.

    Args:
        policy: the rules.
        subject: the task or output; empty fields are used as they are.
    """
    lines = [f"policy {policy.source}"]
    if not policy.enabled:
        lines.append("checkpoint: switched off (checkpoint.enabled)")
    else:
        lines.extend(_checkpoint(policy, subject))
    lines.append(_memory(policy, subject))
    for event in EVENTS:
        shown = policy.failover_rule(event, subject) or DEFAULT_RULES.get(event)
        if shown is None:
            lines.append(f"on {event}: the next step of the rule that wanted it, after all other copies")
            continue
        lines.append(f"on {event}: {_steps(shown)}  [{shown.mark.short}]")
    return lines


def _checkpoint(policy: Policy, subject: Subject) -> list[str]:
    rule = policy.checkpoint_rule(subject)
    if rule is None:
        sized = [one for one in policy.checkpoints if one.match.size and subject.nbytes is None]
        hint = "; rules with a size may match its outputs: give --size" if sized else ""
        return [f"checkpoint: none, because no rule matches{hint}"]
    lines = [f"checkpoint: {_when(rule.when)}{_every(rule)}  [{rule.mark.short}, matches {rule.match}]"]
    if rule.when.kind == "never":
        return lines
    kept = "all" if rule.keep is None else f"the last {rule.keep}"
    waits = "the task waits for it" if rule.mode == "sync" else "the task does not wait"
    lines.append(f"  mode {rule.mode}: {waits}; {kept} of each output are kept")
    for number, target in enumerate(rule.targets):
        said = "to" if number == 0 else "else to"
        lines.append(f"  {said} {target.template}  [{target.mark.short}]")
    used = [one for one in PLACEHOLDERS if any(f"{{{one}}}" in target.template for target in rule.targets)]
    if used:
        lines.append(f"  where {', '.join(used)} are those of the run")
    return lines


def _memory(policy: Policy, subject: Subject) -> str:
    rule = policy.memory_rule(subject)
    if rule is None:
        return "memory: never dropped, because the policy has no 'memory'"
    said = (
        "dropped when memory is short, if making it again is expected to cost less than moving it to disk"
        if rule.recompute
        else "never dropped"
    )
    return f"memory: {said}  [{rule.mark.short}, matches {rule.match}]"


def _when(when: When) -> str:
    if when.kind == "auto":
        return "if a loss is expected to cost more than the checkpoint"
    if when.kind != "bounds":
        return when.kind
    bounds = [
        *(f"making it again takes {one.text} (seconds)" for one in when.recompute_seconds),
        *(f"it has {one.text} (bytes)" for one in when.size),
        *(f"{one.text} tasks read it" for one in when.fan_out),
    ]
    return "if " + " and ".join(bounds) if bounds else "always"


def _every(rule: CheckpointRule) -> str:
    return "" if rule.every == 1 else f", in the first run and every {rule.every} runs"


def _steps(rule: FailoverRule) -> str:
    steps = ", then ".join(_step(one) for one in rule.steps)
    if rule.steps[0].name == "fail":
        return steps
    return f"{steps}; at most {rule.max_attempts} times, {rule.backoff:g} s apart at first"


def _step(step: Step) -> str:
    if step.name == "retry":
        return f"retry {step.attempts} times from {step.delay:g} s on"
    return f"fail ({step.reason})" if step.reason else step.name
