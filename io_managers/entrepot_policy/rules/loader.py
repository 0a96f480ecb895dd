"""Loads a policy from a file: parses it, applies overrides, validates it, and reports all problems at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from entrepot_policy.schema.definition import (
    DEFAULT_BACKOFF_SECONDS,
    DEFAULT_EVENT_BYTES,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_BACKOFF_SECONDS,
    DEFAULT_MAX_TASKS,
    DEFAULT_MODE,
    DEFAULT_QUEUE,
    DEFAULT_WAIT_SECONDS,
    FORMAT_VERSION,
    MATCH_KEYS,
    POLICY,
)
from entrepot_policy.schema.diagnostics import Diagnostic, Location, PolicyError
from entrepot_policy.schema.sections import Model
from entrepot_policy.schema.value_types import Diagnostics
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, compose

VARIABLE = "ENTREPOT_POLICY"
OFF = ("", "off", "none")


def find_policy(path: str | os.PathLike[str] | None = None) -> Policy | None:
    """The policy in force.

    Args:
        path: the file; None: the one named by ENTREPOT_POLICY. ``"off"`` and an empty string mean no policy.

    Raises:
        PolicyError: it cannot be used.
        InvalidArgument: there is no such file, or PyYAML is not installed.
    """
    configured = os.environ.get(VARIABLE, "") if path is None else os.fspath(path)
    return None if configured.lower() in OFF else load_policy(configured)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Load a policy file.

    Args:
        path: of the file.

    Raises:
        PolicyError: it cannot be used; the message lists every problem with file, line and column.
        InvalidArgument: it cannot be read, or PyYAML is not installed.
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
        InvalidArgument: PyYAML is not installed.
    """
    variables = find_overrides(environment)
    root = apply_overrides(compose(text, source), variables)
    _check_version(root)
    problems: Diagnostics = []
    document = POLICY.read(root, problems)
    if document is None:
        raise PolicyError(problems)
    digest = hashlib.sha256("\0".join([text, *(f"{name}={value}" for name, value in variables.items())]).encode())
    policy = _PolicyBuilder(document, problems).build(source, digest.hexdigest()[:16])
    validation.validate(policy, document, problems)
    if problems:
        raise PolicyError(problems)
    return policy


def schema_problems(text: str, source: str = "policy") -> list[Diagnostic]:
    """The problems that the JSON schema would report, without semantic ones."""
    problems: Diagnostics = []
    try:
        POLICY.read(compose(text, source), problems)
    except PolicyError as error:
        return list(error.problems)
    return problems


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
    """Builds rules from parsed sections, and reports inconsistencies."""

    def __init__(self, document: Model, problems: Diagnostics) -> None:
        self._document = document
        self._problems = problems
        self._targets: dict[str, Target] = {}
        self._fallbacks: dict[str, str] = {}

    def build(self, source: str, digest: str) -> Policy:
        self._read_targets()
        checkpoint: Model | None = self._document.get("checkpoint")
        events: Model | None = self._document.get("events")
        event_settings = EventSettings()
        if events is not None:
            event_settings = EventSettings(
                events.get("enabled", True), events.get("folder"), int(events.get("max_bytes", DEFAULT_EVENT_BYTES))
            )
        failover = tuple(self._failover_rule(rule) for rule in self._document.get("failover", ()))
        memory: Model | None = self._document.get("memory")
        memory_rules = () if memory is None else _memory_rules(memory)
        overhead = None if memory is None else memory.get("overhead")
        if checkpoint is None:
            return Policy(
                source,
                digest,
                self._targets,
                failover=failover,
                events=event_settings,
                memory=memory_rules,
                overhead=overhead,
            )
        # Disabled checkpoint rules are still checked, so that they are valid when enabled.
        rules = tuple(self._checkpoint_rule(rule, checkpoint) for rule in checkpoint.get("rules", ()))
        return Policy(
            source,
            digest,
            self._targets,
            rules,
            failover,
            enabled=checkpoint.get("enabled", True),
            queue=checkpoint.get("queue", DEFAULT_QUEUE),
            wait_seconds=checkpoint.get("wait", DEFAULT_WAIT_SECONDS),
            fail_on_error=checkpoint.get("on_error", "warn") == "fail",
            failures_per_day=checkpoint.get("failures_per_day", 0.1),
            events=event_settings,
            memory=memory_rules,
            overhead=overhead,
        )

    # --- targets

    def _read_targets(self) -> None:
        sections: dict[str, Model] = self._document.get("targets", {})
        for name, section in sections.items():
            self._targets[name] = self._target(
                name, section.values["url"], section.at("url"), section.get("options", {}), section
            )
            if "fallback" in section.values:
                self._fallbacks[name] = section.values["fallback"]
        for name, fallback in self._fallbacks.items():
            if fallback not in self._targets:
                available = ", ".join(self._targets)
                self._add_problem(
                    sections[name].at("fallback"), f"unknown target {fallback!r}; known targets: {available}"
                )
        self._check_fallback_cycles(sections)

    def _check_fallback_cycles(self, sections: Mapping[str, Model]) -> None:
        reported: set[str] = set()
        for start in self._fallbacks:
            path, current = [start], start
            while (current := self._fallbacks.get(current, "")) and current not in path:
                path.append(current)
            if current == start and not reported & set(path):
                reported |= set(path)
                cycle = " -> ".join([*path, start])
                self._add_problem(sections[start].at("fallback"), f"the fallbacks form a cycle: {cycle}")

    def _target(self, name: str, url: str, location: Location, options: Any, section: Model | None) -> Target:
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
        return Target(name, url, location, values)

    def _target_chain(self, target_name: str | None, location: Location) -> tuple[Target, ...]:
        if target_name is None:
            return ()
        if target_name not in self._targets:
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

    def _checkpoint_rule(self, section: Model, parent: Model) -> CheckpointRule:
        when = _when(section.get("when", "always"))
        has_target = "target" in section.values
        if not has_target and "target" not in parent.values and when.kind != "never":
            self._add_problem(
                section.mark, "this rule has no target, and 'checkpoint' has none: set a target name or a URL"
            )
        target_section = section if has_target else parent
        return CheckpointRule(
            location=section.mark,
            match=_match(section.get("match", "*")),
            every=section.get("every", 1),
            when=when,
            mode=section.get("mode", parent.get("mode", DEFAULT_MODE)),
            keep=section.get("keep", parent.get("keep")),
            targets=()
            if when.kind == "never"
            else self._target_chain(target_section.get("target"), target_section.at("target")),
        )

    def _failover_rule(self, section: Model) -> FailoverRule:
        attempts = section.get("max_attempts", DEFAULT_MAX_ATTEMPTS)
        backoff = section.get("backoff", DEFAULT_BACKOFF_SECONDS)
        max_backoff = section.get("max_backoff", DEFAULT_MAX_BACKOFF_SECONDS)
        steps = tuple(_step(step, attempts, backoff, max_backoff) for step in section.values["do"])
        return FailoverRule(
            location=section.mark,
            events=section.values["on"],
            match=_match(section.get("match", "*")),
            steps=steps,
            max_attempts=attempts,
            backoff=backoff,
            max_backoff=max_backoff,
            max_tasks=section.get("max_tasks", DEFAULT_MAX_TASKS),
        )

    def _add_problem(self, location: Location, text: str) -> None:
        problem = Diagnostic(location, text)
        if problem not in self._problems:  # a default target is checked for every rule
            self._problems.append(problem)


def _match(value: str | Model) -> Match:
    if isinstance(value, str):
        return Match({} if value == "*" else {"task": (value,)})
    globs = {key: value.values[key] for key in MATCH_KEYS if key in value.values}
    return Match(globs, value.get("size", ()))


def _memory_rules(section: Model) -> tuple[MemoryRule, ...]:
    rules = [
        MemoryRule(rule.mark, _match(rule.get("match", "*")), rule.values["recompute"] == "auto")
        for rule in section.get("rules", ())
    ]
    return (*rules, MemoryRule(section.at("recompute"), Match(), section.get("recompute", "never") == "auto"))


def _when(value: Any) -> CheckpointCondition:
    if isinstance(value, Model):
        return CheckpointCondition(
            "bounds", value.get("recompute_seconds", ()), value.get("size", ()), value.get("fan_out", ())
        )
    return CheckpointCondition(value)


def _step(value: str | Model, attempts: int, backoff: float, max_backoff: float) -> Step:
    step = Step(value if isinstance(value, str) else next(iter(value.values)), attempts, backoff, 2.0, max_backoff)
    if isinstance(value, str):
        return step
    options: Model = value.values[step.name]
    if step.name == "fail":
        return Step("fail", attempts, backoff, 2.0, max_backoff, options.get("reason", ""))
    return Step(
        "retry",
        options.get("attempts", attempts),
        options.get("delay", backoff),
        options.get("factor", 2.0),
        options.get("max_delay", max_backoff),
    )
