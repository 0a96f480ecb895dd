"""Explains what a policy would do about a task: ``entrepot policy explain``."""

from __future__ import annotations

from entrepot.phrases import count_of

from entrepot_policy.recovery.incident import DEFAULT_RULES
from entrepot_policy.rules.match_target import Subject
from entrepot_policy.rules.model import CheckpointCondition, CheckpointRule, FailoverRule, Policy, Step
from entrepot_policy.rules.targets import FORMER_PLACEHOLDERS, PLACEHOLDERS
from entrepot_policy.schema.constants import EVENTS


def explain(policy: Policy, subject: Subject) -> list[str]:
    """Lines of text to print.

    Args:
        policy: the rules.
        subject: the task or output; empty fields are used as they are.
    """
    lines = [f"policy {policy.source}"]
    if not policy.enabled:
        lines.append("checkpoint: disabled (checkpoint.enabled)")
    else:
        lines.extend(_checkpoint(policy, subject))
    lines.append(_memory(policy, subject))
    for event in EVENTS:
        rule = policy.failover_rule(event, subject) or DEFAULT_RULES.get(event)
        if rule is None:
            lines.append(f"on {event}: all other copies, then the next step of the rule that requested the reload")
            continue
        lines.append(f"on {event}: {_steps(event, rule)}  [{rule.location.short}]")
    return lines


def _checkpoint(policy: Policy, subject: Subject) -> list[str]:
    rule = policy.checkpoint_rule(subject)
    if rule is None:
        size_rules = [item for item in policy.checkpoints if item.match.size and subject.nbytes is None]
        hint = "; rules with a size may match its outputs: pass --size" if size_rules else ""
        return [f"checkpoint: none, because no rule matches{hint}"]
    lines = [f"checkpoint: {_when(rule.when)}{_every(rule)}  [{rule.location.short}, matches {rule.match}]"]
    if rule.when.kind == "never":
        return lines
    kept = "all checkpoints" if rule.keep is None else f"the last {count_of(rule.keep, 'checkpoint')}"
    waits = "the task waits for it" if rule.mode == "sync" else "the task does not wait"
    lines.append(f"  mode {rule.mode}: {waits}; {kept} of each output {'is' if rule.keep == 1 else 'are'} kept")
    for number, target in enumerate(rule.targets):
        prefix = "to" if number == 0 else "otherwise to"
        lines.append(f"  {prefix} {target.template}  [{target.location.short}]")
    used = [
        item
        for item in PLACEHOLDERS + FORMER_PLACEHOLDERS
        if any(f"{{{item}}}" in target.template for target in rule.targets)
    ]
    if used:
        lines.append(f"  with {', '.join(used)} taken from the run")
    return lines


def _memory(policy: Policy, subject: Subject) -> str:
    rule = policy.memory_rule(subject)
    if rule is None:
        return "memory: never dropped, because the policy has no 'memory'"
    outcome = (
        "dropped when memory is short, if recomputing it is expected to cost less than spilling it"
        if rule.recompute
        else "never dropped"
    )
    return f"memory: {outcome}  [{rule.location.short}, matches {rule.match}]"


def _when(when: CheckpointCondition) -> str:
    if when.kind == "auto":
        return "if a loss is expected to cost more than the checkpoint"
    if when.kind != "bounds":
        return when.kind
    bounds = [
        *(f"recomputing it takes {limit.text} (seconds)" for limit in when.recompute_seconds),
        *(f"its size is {limit.text} (bytes)" for limit in when.size),
        *(f"{limit.text} tasks read it" for limit in when.fan_out),
    ]
    return "if " + " and ".join(bounds) if bounds else "always"


def _every(rule: CheckpointRule) -> str:
    return "" if rule.every == 1 else f", in the first run and every {rule.every} runs"


def _steps(event: str, rule: FailoverRule) -> str:
    steps = ", then ".join(_step(step, rule) for step in rule.steps)
    # The orchestrator retries a failed task, so only the step's own limits apply; 'fail' ends the first pass.
    if event == "task_failed" or rule.max_attempts == 1 or any(step.name == "fail" for step in rule.steps):
        return steps
    return f"{steps}; at most {rule.max_attempts} passes through these steps, the second after {rule.backoff:g} s"


def _step(step: Step, rule: FailoverRule) -> str:
    if step.name == "rerun_upstream":
        return f"rerun_upstream (at most {count_of(rule.max_attempts, 'time')} a day for an object)"
    if step.name == "retry" and step.attempts == 1:
        return f"retry once, after {step.delay:g} s"
    if step.name == "retry":
        return f"retry up to {step.attempts} times, first after {step.delay:g} s"
    return f"fail ({step.reason})" if step.reason else step.name
