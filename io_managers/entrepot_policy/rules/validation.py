"""Semantic checks: rules that contradict each other or themselves, and targets that cannot be written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from entrepot.errors import AccessDenied, EntrepotError

from entrepot_policy.rules.matching import empty_range
from entrepot_policy.rules.model import CheckpointRule, FailoverRule, MemoryRule, Policy
from entrepot_policy.rules.targets import Target, template_problem, without_credentials
from entrepot_policy.schema.constants import STEPS_OF
from entrepot_policy.schema.diagnostics import Diagnostic, Diagnostics, LeftOut, lacks_a_section

if TYPE_CHECKING:
    from entrepot_policy.schema.definition import CheckpointRuleSection, MemorySection, PolicySection


def target_problem(url: str) -> str:
    """Return the reason why a target's template is unusable; empty: it is usable."""
    return template_problem(url)


def validate(policy: Policy, document: PolicySection, problems: Diagnostics, left_out: LeftOut = frozenset()) -> None:
    """Report contradictions, unless what was left out can be their reason.

    Args:
        policy: the policy as constructed.
        document: the parsed sections it was constructed from.
        problems: added to.
        left_out: the parts of the policy that are not in it, because they are wrong.
    """
    incomplete = {path[0] for path in left_out}
    complete = set() if lacks_a_section(left_out) else {"checkpoint", "memory", "failover"} - incomplete
    rules = () if document.checkpoint is None else document.checkpoint.rules
    for index, rule in enumerate(policy.checkpoints):
        _check_rule(rule, rules[index], problems)
        _check_unreachable(rule, policy.checkpoints[:index], problems)
    _check_memory(policy, document.memory, problems, complete)
    for index, failover_rule in enumerate(policy.failover):
        _check_steps(failover_rule, problems)
        _check_unreachable_events(failover_rule, policy.failover[:index], problems)
        if (
            not rules
            and "checkpoint" in complete
            and any(step.name == "reload_checkpoint" for step in failover_rule.steps)
        ):
            problems.append(
                Diagnostic(
                    failover_rule.location,
                    "the step reload_checkpoint has no effect, because the policy has no checkpoint rules: "
                    "add 'checkpoint', or remove the step",
                )
            )


def probe_targets(targets: Iterable[Target], *, remove_folders: bool = False) -> list[Diagnostic]:
    """Try to write, read and remove a small file below the base of each target.

    Args:
        targets: which.
        remove_folders: whether to remove the folders that this creates, too; not where checkpoints follow.

    Returns:
        A problem for each failure, with the driver's error: no credentials, no permission, no such bucket, a full disk.
    """
    from entrepot_checkpoints.storage.chunks import probe_name
    from entrepot_checkpoints.storage.directory import open_directory

    problems: list[Diagnostic] = []
    for target in targets:
        if lacking := without_credentials([target]):
            problems += lacking
            continue
        name = probe_name()
        try:
            storage = open_directory(target.base, target.options)
            created_folders = storage.missing_folders(name) if remove_folders else []
            try:
                if not storage.probe(name):
                    problems.append(
                        Diagnostic(target.location, f"data read from {target.base} differs from what was written")
                    )
            finally:
                storage.remove_empty(created_folders)
        except EntrepotError as error:
            text = f"checkpoints cannot be written to this target: {error}"
            if isinstance(error, AccessDenied) and not target.options:
                text += (
                    ". The storage_options of a target are its own, as 'options' of an entry of 'targets', such as "
                    "{key: '${S3_KEY}', secret: '${S3_SECRET}'}, or in Kedro, 'credentials' as the name of an entry of "
                    "credentials.yml: those of the orchestrator or its catalog do not reach it by themselves"
                )
            problems.append(Diagnostic(target.location, text))
        except FileNotFoundError:
            problems.append(Diagnostic(target.location, f"a file just written to {target.base} was not found"))
    return problems


def _check_rule(rule: CheckpointRule, section: CheckpointRuleSection, problems: Diagnostics) -> None:
    if rule.when.kind == "never":
        for key in ("every", "mode", "keep", "target"):
            if section.has(key):
                problems.append(
                    Diagnostic(
                        section.at(key), f"this rule has 'when: never', which contradicts {key!r}: remove one of them"
                    )
                )
    ranges = (
        ("match", rule.match.size),
        ("when", rule.when.recompute_seconds),
        ("when", rule.when.size),
        ("when", rule.when.fan_out),
    )
    for key, bounds in ranges:
        if bounds and empty_range(bounds):
            problems.append(
                Diagnostic(section.at(key), f"no number satisfies {_join_limits(bounds)}: this rule never applies")
            )
    combined = rule.match.size + rule.when.size
    if rule.when.size and rule.match.size and empty_range(combined) and not empty_range(rule.when.size):
        problems.append(
            Diagnostic(
                section.at("when"),
                f"match and condition of the rule require {_join_limits(combined)}: no size satisfies both",
            )
        )


def _check_memory(
    policy: Policy, section: MemorySection | None, problems: Diagnostics, complete: Collection[str]
) -> None:
    if section is None:
        return
    for index, rule in enumerate(policy.memory):
        explicit = index < len(policy.memory) - 1
        if explicit and rule.match.size and empty_range(rule.match.size):
            problems.append(
                Diagnostic(
                    rule.location, f"no number satisfies {_join_limits(rule.match.size)}: this rule never applies"
                )
            )
        if explicit or section.has("recompute"):  # the section's own setting counts only if it is explicit
            _check_unreachable(rule, policy.memory[:index], problems)
        if rule.recompute and "failover" in complete:
            _check_recompute_allowed(rule, policy.failover, problems)
    if section.has("overhead") and "memory" in complete and not any(rule.recompute for rule in policy.memory):
        problems.append(
            Diagnostic(section.at("overhead"), "nothing here sets 'recompute: auto', so 'overhead' has no effect")
        )


def _check_recompute_allowed(rule: MemoryRule, failover: tuple[FailoverRule, ...], problems: Diagnostics) -> None:
    """Dropped values must be restorable: the rule that applies to their loss must not prevent that."""
    for failover_rule in failover:
        if "object_dropped" not in failover_rule.events or not failover_rule.match.subsumes(rule.match):
            continue
        if not any(step.name == "rerun_upstream" for step in failover_rule.steps):
            problems.append(
                Diagnostic(
                    rule.location,
                    f"'recompute: auto' allows dropping values that the rule at {failover_rule.location} does not "
                    "recompute: add the step rerun_upstream to that rule, or set 'recompute: never'",
                )
            )
        return


def _check_unreachable(
    rule: CheckpointRule | MemoryRule, earlier: Sequence[CheckpointRule | MemoryRule], problems: Diagnostics
) -> None:
    for earlier_rule in earlier:
        if earlier_rule.match.subsumes(rule.match):
            problems.append(
                Diagnostic(
                    rule.location,
                    f"this rule never applies: everything it matches ({rule.match}) is matched first by the rule at "
                    f"{earlier_rule.location} ({earlier_rule.match}): move it before that rule",
                )
            )
            return


def _check_steps(rule: FailoverRule, problems: Diagnostics) -> None:
    seen: set[str] = set()
    ended = False
    for step in rule.steps:
        if ended:
            problems.append(
                Diagnostic(rule.location, f"the step {step.name} comes after 'fail', so it is never reached")
            )
            return
        if step.name in seen:
            problems.append(Diagnostic(rule.location, f"the step {step.name} is listed twice: remove one"))
        for event in rule.events:
            if step.name not in STEPS_OF[event]:
                allowed = ", ".join(STEPS_OF[event])
                problems.append(
                    Diagnostic(rule.location, f"{step.name} cannot handle {event}; steps that can: {allowed}")
                )
        if step.name == "retry" and step.max_delay < step.delay:
            problems.append(
                Diagnostic(
                    rule.location, f"the retry delay of {step.delay:g} s exceeds its maximum of {step.max_delay:g} s"
                )
            )
        seen.add(step.name)
        ended = step.name == "fail"


def _check_unreachable_events(rule: FailoverRule, earlier: tuple[FailoverRule, ...], problems: Diagnostics) -> None:
    for event in rule.events:
        for earlier_rule in earlier:
            if event in earlier_rule.events and earlier_rule.match.subsumes(rule.match):
                problems.append(
                    Diagnostic(
                        rule.location,
                        f"for {event} this rule never applies: everything it matches ({rule.match}) is matched first "
                        f"by the rule at {earlier_rule.location}",
                    )
                )
                break


def _join_limits(bounds: Iterable[object]) -> str:
    return " and ".join(getattr(limit, "text", str(limit)) for limit in bounds)
