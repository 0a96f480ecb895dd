"""Targets: URL templates under which checkpoints are written.

A template begins with a fixed directory, its *base*, followed by placeholders. The base also holds the catalog of the
checkpoints under it, so that a reader finds an object's checkpoint without knowing the placeholders' values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from entrepot_io.keys import shorten

from entrepot_policy.rules.match_target import Task
from entrepot_policy.schema.diagnostics import Diagnostic, Location, PolicyError, did_you_mean

PLACEHOLDERS = ("orchestrator", "scope", "session", "pipeline", "run", "task")
FORMER_PLACEHOLDERS = ("host",)  # deprecated: of the orchestrator
PART_MAX_BYTES = 120
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Target:
    """A place where checkpoints are written.

    Attributes:
        name: in ``targets``; the template itself if a rule names it directly.
        template: the URL, with placeholders.
        location: its location in the policy.
        options: for fsspec's driver.
        credentials: name of further options, which only the orchestrator has; None: there are none, or they are in
            ``options`` by now.
    """

    name: str
    template: str
    location: Location
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    credentials: str | None = None

    @property
    def base(self) -> str:
        """The fixed directory that the template begins with."""
        return base_of(self.template)

    def root(self, *, task: Task, scope: str, session: str) -> str:
        """The directory for checkpoints of this task.

        Args:
            task: whose output it is.
            scope, session: where the output is in the store.
        """
        values = {
            "orchestrator": task.orchestrator,
            "host": task.orchestrator,
            "scope": scope,
            "session": session,
            "pipeline": task.pipeline,
            "run": task.run,
            "task": task.name,
        }
        return _PLACEHOLDER.sub(lambda match: encode_path_component(values[match[1]]), self.template).rstrip("/")


def add_credentials(target: Target, credentials: Mapping[str, Any]) -> Target:
    """Return a target with the options that its credentials are. No message has their values.

    Args:
        target: the target; its own options take precedence.
        credentials: the orchestrator's, by name.

    Raises:
        PolicyError: they are not among them, or no mapping.
    """
    name = target.credentials
    if name is None:
        return target
    if name not in credentials:
        names = ", ".join(map(repr, credentials)) or "nothing"
        hint = did_you_mean(name, credentials, f"credentials.yml has {names}")
        raise PolicyError([Diagnostic(target.location, f"unknown credentials {name!r} of a target; {hint}")])
    options = credentials[name]
    if not isinstance(options, Mapping):
        text = f"the credentials {name!r} must be a mapping of storage options, such as key and secret, not "
        raise PolicyError([Diagnostic(target.location, text + type(options).__name__)])
    return replace(target, options={**options, **target.options}, credentials=None)


def without_credentials(targets: Iterable[Target]) -> list[Diagnostic]:
    """Return a problem for each target that still lacks its credentials."""
    return [
        Diagnostic(
            target.location,
            f"the credentials {target.credentials!r} are an entry of a Kedro project's credentials.yml, which is read "
            "by 'kedro run' and nothing else: here, use 'options', such as {key: '${S3_KEY}', secret: '${S3_SECRET}'}",
        )
        for target in targets
        if target.credentials is not None
    ]


def encode_path_component(text: str) -> str:
    """Encode a string as one component of a path, on any file system; an empty one becomes ``_``.

    >>> encode_path_component("manual__2026-01-01T00:00:00")
    'manual__2026-01-01T00:00:00'
    >>> encode_path_component("../x"), encode_path_component("")
    ('..%2Fx', '_')
    """
    quoted = quote(text, safe="=:@+,")
    if quoted.strip(".") == "":
        quoted = quoted.replace(".", "%2E") or "_"
    return shorten(quoted, PART_MAX_BYTES)


def base_of(template: str) -> str:
    """The directory part of a template before its first placeholder, without a trailing slash."""
    brace = template.find("{")
    fixed = template if brace < 0 else template[: template.rfind("/", 0, brace) + 1]
    return fixed.rstrip("/")


def template_problem(template: str) -> str:
    """Return the reason why no checkpoint can ever be written under a template; empty: one can."""
    scheme = _SCHEME.match(template)
    if scheme is None and not template.startswith("/"):
        return (
            f"{template!r} is neither an absolute path nor a URL: tasks run in different folders, "
            "so use /absolute/path or scheme://..."
        )
    rest = _PLACEHOLDER.sub("x", template)
    if "{" in rest or "}" in rest:
        return f"unbalanced braces in {template!r}"
    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in PLACEHOLDERS + FORMER_PLACEHOLDERS]
    if unknown:
        names = ", ".join(f"{{{name}}}" for name in dict.fromkeys(unknown))
        available = ", ".join(f"{{{item}}}" for item in PLACEHOLDERS)
        return f"unknown placeholder {names}; known placeholders: {available}"
    start = scheme.end() if scheme else 0
    path = template[start:]
    if any(item in (".", "..") for item in path.split("/")):
        return f"{template!r} contains '.' or '..', which file systems interpret differently: use a path without them"
    fixed = base_of(template)
    if not fixed[start:].strip("/") or (scheme and len(fixed) <= start):
        return f"{template!r} must begin with a fixed folder: the checkpoint catalog needs one before the first {{"
    if scheme is not None and scheme[0] == "memory://":
        return f"{template!r} is in the memory of one process and lost when it exits: use a persistent location"
    if scheme is not None and not _is_supported_scheme(scheme[0]):
        return (
            f"fsspec does not support the scheme {scheme[0]!r}: use a path, file://, s3://, gs://, abfs:// or another "
            "scheme that it supports"
        )
    return ""


def expand_environment(value: Any) -> tuple[Any, list[str]]:
    """Substitute each ``${NAME}`` in a value, or in nested lists and mappings, from the environment.

    Returns:
        The value, and the names that are not set.
    """
    missing: list[str] = []

    def substitute(match: re.Match[str]) -> str:
        if (setting := os.environ.get(match[1])) is None:
            missing.append(match[1])
        return setting or ""

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return _VARIABLE.sub(substitute, item)
        if isinstance(item, list):
            return [walk(inner) for inner in item]
        if isinstance(item, dict):
            return {name: walk(inner) for name, inner in item.items()}
        return item

    return walk(value), missing


def _is_supported_scheme(scheme: str) -> bool:
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        return True  # the writer reports that fsspec is missing
    return all(
        protocol in known_implementations or protocol in registry for protocol in scheme.removesuffix("://").split("::")
    )
