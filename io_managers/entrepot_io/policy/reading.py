"""Loads a policy from a file: parses it, applies overrides, validates it, and reports all problems at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_io.policy import checks
from entrepot_io.policy.definition import (
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
from entrepot_io.policy.kinds import Problems
from entrepot_io.policy.matching import Match
from entrepot_io.policy.model import CheckpointRule, EventSettings, FailoverRule, MemoryRule, Policy, Step, When
from entrepot_io.policy.nodes import Node, Scalar, Table, compose
from entrepot_io.policy.overrides import overridden, overrides
from entrepot_io.policy.problems import Mark, PolicyError, Problem
from entrepot_io.policy.sections import Said
from entrepot_io.policy.targets import Target, with_environment

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
    named = os.environ.get(VARIABLE, "") if path is None else os.fspath(path)
    return None if named.lower() in OFF else load_policy(named)


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
        raise PolicyError([Problem(Mark(str(file)), f"the file is not UTF-8: {error}")]) from error
    except OSError as error:
        raise InvalidArgument(
            f"the policy {str(file)!r} cannot be read: {error.strerror}; {VARIABLE} or the host's setting names it"
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
    set_by = overrides(environment)
    root = overridden(compose(text, source), set_by)
    _check_version(root)
    problems: Problems = []
    said = POLICY.read(root, problems)
    if said is None:
        raise PolicyError(problems)
    digest = hashlib.sha256("\0".join([text, *(f"{name}={value}" for name, value in set_by.items())]).encode())
    made = _Maker(said, problems).policy(source, digest.hexdigest()[:16])
    checks.check(made, said, problems)
    if problems:
        raise PolicyError(problems)
    return made


def shape_problems(text: str, source: str = "policy") -> list[Problem]:
    """The problems that the JSON schema would report, without semantic ones."""
    problems: Problems = []
    try:
        POLICY.read(compose(text, source), problems)
    except PolicyError as error:
        return list(error.problems)
    return problems


def _check_version(root: Node) -> None:
    """A newer format may differ everywhere, so report only that."""
    if not isinstance(root, Table) or "version" not in root.entries:
        return
    mark, node = root.entries["version"]
    if isinstance(node, Scalar) and isinstance(node.value, int) and node.value > FORMAT_VERSION:
        raise PolicyError(
            [
                Problem(
                    mark,
                    f"the policy has format version {node.value}, this installation reads up to {FORMAT_VERSION}: "
                    "upgrade entrepot here",
                )
            ]
        )


class _Maker:
    """Builds rules from parsed sections, and reports inconsistencies."""

    def __init__(self, said: Said, problems: Problems) -> None:
        self._said = said
        self._problems = problems
        self._targets: dict[str, Target] = {}
        self._fallbacks: dict[str, str] = {}

    def policy(self, source: str, digest: str) -> Policy:
        self._read_targets()
        checkpoint: Said | None = self._said.get("checkpoint")
        events: Said | None = self._said.get("events")
        log = EventSettings()
        if events is not None:
            log = EventSettings(
                events.get("enabled", True), events.get("folder"), int(events.get("max_bytes", DEFAULT_EVENT_BYTES))
            )
        failover = tuple(self._failover_rule(rule) for rule in self._said.get("failover", ()))
        memory: Said | None = self._said.get("memory")
        drops = () if memory is None else _memory_rules(memory)
        overhead = None if memory is None else memory.get("overhead")
        if checkpoint is None:
            return Policy(source, digest, self._targets, failover=failover, events=log, memory=drops, overhead=overhead)
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
            events=log,
            memory=drops,
            overhead=overhead,
        )

    # --- targets

    def _read_targets(self) -> None:
        named: dict[str, Said] = self._said.get("targets", {})
        for name, one in named.items():
            self._targets[name] = self._target(name, one.values["url"], one.at("url"), one.get("options", {}), one)
            if "fallback" in one.values:
                self._fallbacks[name] = one.values["fallback"]
        for name, fallback in self._fallbacks.items():
            if fallback not in self._targets:
                known = ", ".join(self._targets)
                self._note(named[name].at("fallback"), f"there is no target {fallback!r}; there are {known}")
        self._note_cycles(named)

    def _note_cycles(self, named: Mapping[str, Said]) -> None:
        told: set[str] = set()
        for start in self._fallbacks:
            path, at = [start], start
            while (at := self._fallbacks.get(at, "")) and at not in path:
                path.append(at)
            if at == start and not told & set(path):
                told |= set(path)
                circle = " -> ".join([*path, start])
                self._note(named[start].at("fallback"), f"the fallbacks go in a circle: {circle}")

    def _target(self, name: str, url: str, mark: Mark, options: Any, said: Said | None) -> Target:
        url, missing = with_environment(url)
        values, missing_too = with_environment(options)
        for variable in missing:
            self._note(mark, f"the environment variable {variable} is not set")
        for variable in missing_too:
            at = mark if said is None else said.at("options")
            self._note(at, f"the environment variable {variable} is not set, so the credentials or options are missing")
        if not missing and (problem := checks.target_problem(url)):
            self._note(mark, problem)
        return Target(name, url, mark, values)

    def _chain(self, wanted: str | None, mark: Mark) -> tuple[Target, ...]:
        if wanted is None:
            return ()
        if wanted not in self._targets:
            if "/" not in wanted:
                known = ", ".join(self._targets) or "none"
                self._note(mark, f"there is no target {wanted!r}; there are {known}. A URL or path has a '/'")
                return ()
            return (self._target(wanted, wanted, mark, {}, None),)
        chain = [wanted]
        while (following := self._fallbacks.get(chain[-1], "")) in self._targets and following not in chain:
            chain.append(following)
        return tuple(self._targets[name] for name in chain)

    # --- rules

    def _checkpoint_rule(self, said: Said, parent: Said) -> CheckpointRule:
        when = _when(said.get("when", "always"))
        own = "target" in said.values
        if not own and "target" not in parent.values and when.kind != "never":
            self._note(said.mark, "this rule has no target, and neither has 'checkpoint': name a URL or a target")
        holder = said if own else parent
        return CheckpointRule(
            mark=said.mark,
            match=_match(said.get("match", "*")),
            every=said.get("every", 1),
            when=when,
            mode=said.get("mode", parent.get("mode", DEFAULT_MODE)),
            keep=said.get("keep", parent.get("keep")),
            targets=() if when.kind == "never" else self._chain(holder.get("target"), holder.at("target")),
        )

    def _failover_rule(self, said: Said) -> FailoverRule:
        attempts = said.get("max_attempts", DEFAULT_MAX_ATTEMPTS)
        backoff = said.get("backoff", DEFAULT_BACKOFF_SECONDS)
        most = said.get("max_backoff", DEFAULT_MAX_BACKOFF_SECONDS)
        steps = tuple(_step(one, attempts, backoff, most) for one in said.values["do"])
        return FailoverRule(
            mark=said.mark,
            events=said.values["on"],
            match=_match(said.get("match", "*")),
            steps=steps,
            max_attempts=attempts,
            backoff=backoff,
            max_backoff=most,
            max_tasks=said.get("max_tasks", DEFAULT_MAX_TASKS),
        )

    def _note(self, mark: Mark, text: str) -> None:
        problem = Problem(mark, text)
        if problem not in self._problems:  # a default target is checked for every rule
            self._problems.append(problem)


def _match(said: str | Said) -> Match:
    if isinstance(said, str):
        return Match({} if said == "*" else {"task": (said,)})
    globs = {key: said.values[key] for key in MATCH_KEYS if key in said.values}
    return Match(globs, said.get("size", ()))


def _memory_rules(said: Said) -> tuple[MemoryRule, ...]:
    rules = [
        MemoryRule(one.mark, _match(one.get("match", "*")), one.values["recompute"] == "auto")
        for one in said.get("rules", ())
    ]
    return (*rules, MemoryRule(said.at("recompute"), Match(), said.get("recompute", "never") == "auto"))


def _when(said: Any) -> When:
    if isinstance(said, Said):
        return When("bounds", said.get("recompute_seconds", ()), said.get("size", ()), said.get("fan_out", ()))
    return When(said)


def _step(said: str | Said, attempts: int, backoff: float, most: float) -> Step:
    step = Step(said if isinstance(said, str) else next(iter(said.values)), attempts, backoff, 2.0, most)
    if isinstance(said, str):
        return step
    inner: Said = said.values[step.name]
    if step.name == "fail":
        return Step("fail", attempts, backoff, 2.0, most, inner.get("reason", ""))
    return Step(
        "retry",
        inner.get("attempts", attempts),
        inner.get("delay", backoff),
        inner.get("factor", 2.0),
        inner.get("max_delay", most),
    )
