"""Loads a policy from a file: parses it, applies overrides, validates it, and reports all problems at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from entrepot.errors import InvalidArgument

from entrepot_policy.rules import validation
from entrepot_policy.rules.matching import Match
from entrepot_policy.rules.model import (
    CheckpointCondition,
    CheckpointRule,
    EventSettings,
    FailoverRule,
    MemoryRule,
    Policy,
    Step,
)
from entrepot_policy.rules.overrides import apply_overrides, find_overrides
from entrepot_policy.rules.targets import Target, expand_environment
from entrepot_policy.schema.constants import DEFAULT_BACKOFF_FACTOR, FORMAT_VERSION, MATCH_KEYS
from entrepot_policy.schema.diagnostics import Diagnostic, Diagnostics, LeftOut, Location, PolicyError, lacks_a_section
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, compose

if TYPE_CHECKING:
    from entrepot_policy.schema.definition import (
        CheckpointRuleSection,
        CheckpointSection,
        FailoverRuleSection,
        MatchSection,
        MemorySection,
        PolicySection,
        StepSection,
        TargetSection,
        WhenSection,
    )
    from entrepot_policy.schema.reading import Reading

VARIABLE = "ENTREPOT_POLICY"
OFF = ("", "off", "none")


def find_policy(path: str | os.PathLike[str] | None = None) -> Policy | None:
    """The policy in force.

    Args:
        path: the file; None: the one named by ENTREPOT_POLICY. ``"off"`` and an empty string mean no policy.

    Raises:
        PolicyError: it cannot be used.
        InvalidArgument: there is no such file, or PyYAML or pydantic is not installed.
    """
    configured = os.environ.get(VARIABLE, "") if path is None else os.fspath(path)
    return None if configured.lower() in OFF else load_policy(configured)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Load a policy file.

    Args:
        path: of the file.

    Raises:
        PolicyError: it cannot be used; the message lists every problem with file, line and column.
        InvalidArgument: it cannot be read, or PyYAML or pydantic is not installed.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError([Diagnostic(Location(str(file)), f"the file is not UTF-8: {error}")]) from error
    except OSError as error:
        raise InvalidArgument(
            f"cannot read the policy {str(file)!r}: {error.strerror}; check {VARIABLE} or the orchestrator's setting"
        ) from error
    return parse_policy(text, str(file))


def parse_policy(text: str, source: str = "policy", environment: Mapping[str, str] | None = None) -> Policy:
    """Parse a policy.

    Args:
        text: the YAML document.
        source: its name in messages.
        environment: variables that may override it; None: those of the process.

    Raises:
        PolicyError: it cannot be used.
        InvalidArgument: PyYAML or pydantic is not installed.
    """
    variables = find_overrides(environment)
    root = apply_overrides(compose(text, source), variables)
    _check_version(root)
    reading = _read(root, source)
    problems: Diagnostics = list(reading.problems)
    document = reading.document
    if document is None:
        raise PolicyError(problems)
    digest = hashlib.sha256("\0".join([text, *(f"{name}={value}" for name, value in variables.items())]).encode())
    policy = _PolicyBuilder(document, problems, reading.left_out).build(source, digest.hexdigest()[:16])
    validation.validate(policy, document, problems, reading.left_out)
    if problems:
        raise PolicyError(problems)
    return policy


def schema_problems(text: str, source: str = "policy") -> list[Diagnostic]:
    """The problems that the JSON schema would report, without semantic ones."""
    try:
        return list(PolicyError(_read(compose(text, source), source).problems).problems)
    except PolicyError as error:
        return list(error.problems)


def _read(root: Node, source: str) -> Reading:
    try:
        from entrepot_policy.schema.reading import read_policy
    except ImportError as error:
        raise InvalidArgument(
            f"the policy {source} requires pydantic 2.9 or newer: pip install 'entrepot[policy]' ({error})"
        ) from error
    return read_policy(root)


def _check_version(root: Node) -> None:
    """A newer format may differ everywhere, so report only that."""
    if not isinstance(root, MappingNode) or "version" not in root.entries:
        return
    location, node = root.entries["version"]
    if isinstance(node, ScalarNode) and isinstance(node.value, int) and node.value > FORMAT_VERSION:
        raise PolicyError(
            [
                Diagnostic(
                    location,
                    f"the policy has format version {node.value}, but this installation reads up to {FORMAT_VERSION}: "
                    "upgrade entrepot here",
                )
            ]
        )


class _PolicyBuilder:
    """Builds rules from parsed sections, and reports inconsistencies, unless what was left out can be their reason."""

    def __init__(self, document: PolicySection, problems: Diagnostics, left_out: LeftOut) -> None:
        self._document = document
        self._problems = problems
        self._knows_targets = not lacks_a_section(left_out) and not any(path[0] == "targets" for path in left_out)
        self._knows_default_target = not any(path[0] == "checkpoint" and path[1:2] != ("rules",) for path in left_out)
        self._targets: dict[str, Target] = {}
        self._fallbacks: dict[str, str] = {}

    def build(self, source: str, digest: str) -> Policy:
        self._read_targets()
        document = self._document
        events = EventSettings(document.events.enabled, document.events.folder, int(document.events.max_bytes))
        failover = tuple(self._failover_rule(rule) for rule in document.failover)
        memory = document.memory
        memory_rules = () if memory is None else _memory_rules(memory)
        overhead = None if memory is None else memory.overhead
        checkpoint = document.checkpoint
        if checkpoint is None:
            return Policy(
                source,
                digest,
                self._targets,
                failover=failover,
                events=events,
                memory=memory_rules,
                overhead=overhead,
            )
        # Disabled checkpoint rules are still checked, so that they are valid when enabled.
        rules = tuple(self._checkpoint_rule(rule, checkpoint) for rule in checkpoint.rules)
        return Policy(
            source,
            digest,
            self._targets,
            rules,
            failover,
            enabled=checkpoint.enabled,
            queue=checkpoint.queue,
            wait_seconds=checkpoint.wait,
            fail_on_error=checkpoint.on_error == "fail",
            failures_per_day=checkpoint.failures_per_day,
            events=events,
            memory=memory_rules,
            overhead=overhead,
        )

    # --- targets

    def _read_targets(self) -> None:
        sections = self._document.targets
        for name, section in sections.items():
            self._targets[name] = self._target(name, section.url, section.at("url"), section.options, section)
            if section.fallback is not None:
                self._fallbacks[name] = section.fallback
        for name, fallback in self._fallbacks.items():
            if fallback not in self._targets and self._knows_targets:
                available = ", ".join(self._targets)
                self._add_problem(
                    sections[name].at("fallback"), f"unknown target {fallback!r}; known targets: {available}"
                )
        self._check_fallback_cycles(sections)

    def _check_fallback_cycles(self, sections: Mapping[str, TargetSection]) -> None:
        reported: set[str] = set()
        for start in self._fallbacks:
            path, current = [start], start
            while (current := self._fallbacks.get(current, "")) and current not in path:
                path.append(current)
            if current == start and not reported & set(path):
                reported |= set(path)
                cycle = " -> ".join([*path, start])
                self._add_problem(sections[start].at("fallback"), f"the fallbacks form a cycle: {cycle}")

    def _target(self, name: str, url: str, location: Location, options: Any, section: TargetSection | None) -> Target:
        url, missing = expand_environment(url)
        values, missing_in_options = expand_environment(options)
        for variable in missing:
            self._add_problem(location, f"the environment variable {variable} is not set")
        for variable in missing_in_options:
            options_location = location if section is None else section.at("options")
            self._add_problem(
                options_location,
                f"the environment variable {variable} is not set, so the credentials or options are missing",
            )
        if not missing and (problem := validation.target_problem(url)):
            self._add_problem(location, problem)
        return Target(name, url, location, values, None if section is None else section.credentials)

    def _target_chain(self, target_name: str | None, location: Location) -> tuple[Target, ...]:
        if target_name is None:
            return ()
        if target_name not in self._targets:
            if "/" not in target_name and not self._knows_targets:
                return ()
            if "/" not in target_name:
                available = ", ".join(self._targets) or "none"
                self._add_problem(
                    location,
                    f"unknown target {target_name!r}; known targets: {available}. A URL or path contains a '/'",
                )
                return ()
            return (self._target(target_name, target_name, location, {}, None),)
        chain = [target_name]
        while (fallback := self._fallbacks.get(chain[-1], "")) in self._targets and fallback not in chain:
            chain.append(fallback)
        return tuple(self._targets[name] for name in chain)

    # --- rules

    def _checkpoint_rule(self, section: CheckpointRuleSection, parent: CheckpointSection) -> CheckpointRule:
        when = _when(section.when)
        has_target = section.target is not None or parent.target is not None
        if not has_target and when.kind != "never" and self._knows_default_target:
            self._add_problem(
                section.mark, "this rule has no target, and 'checkpoint' has none: set a target name or a URL"
            )
        target_section = parent if section.target is None else section
        return CheckpointRule(
            location=section.mark,
            match=_match(section.match),
            every=section.every,
            when=when,
            mode=section.mode or parent.mode,
            keep=section.keep or parent.keep,
            targets=()
            if when.kind == "never"
            else self._target_chain(target_section.target, target_section.at("target")),
        )

    def _failover_rule(self, section: FailoverRuleSection) -> FailoverRule:
        return FailoverRule(
            location=section.mark,
            events=section.on,
            match=_match(section.match),
            steps=tuple(_step(step, section) for step in section.do),
            max_attempts=section.max_attempts,
            backoff=section.backoff,
            max_backoff=section.max_backoff,
            max_tasks=section.max_tasks,
        )

    def _add_problem(self, location: Location, text: str) -> None:
        problem = Diagnostic(location, text)
        if problem not in self._problems:  # a default target is checked for every rule
            self._problems.append(problem)


def _match(value: str | MatchSection) -> Match:
    if isinstance(value, str):
        return Match({} if value == "*" else {"task": (value,)})
    globs: dict[str, tuple[str, ...]] = {key: getattr(value, key) for key in MATCH_KEYS if value.has(key)}
    if value.has("host"):
        globs["orchestrator"] = value.orchestrators()
    return Match(globs, value.size)


def _memory_rules(section: MemorySection) -> tuple[MemoryRule, ...]:
    rules = [MemoryRule(rule.mark, _match(rule.match), rule.recompute == "auto") for rule in section.rules]
    return (*rules, MemoryRule(section.at("recompute"), Match(), section.recompute == "auto"))


def _when(value: Literal["always", "never", "auto"] | WhenSection) -> CheckpointCondition:
    if isinstance(value, str):
        return CheckpointCondition(value)
    return CheckpointCondition("bounds", value.recompute_seconds, value.size, value.fan_out)


def _step(value: str | StepSection, rule: FailoverRuleSection) -> Step:
    limits = Step("", rule.max_attempts, rule.backoff, DEFAULT_BACKOFF_FACTOR, rule.max_backoff)
    if isinstance(value, str):
        return replace(limits, name=value)
    if value.fail is not None:
        return replace(limits, name="fail", reason=value.fail.reason)
    retry = value.retry
    assert retry is not None
    return Step(
        "retry",
        limits.attempts if retry.attempts is None else retry.attempts,
        limits.delay if retry.delay is None else retry.delay,
        retry.factor,
        limits.max_delay if retry.max_delay is None else retry.max_delay,
    )
