"""Targets: URL templates under which checkpoints are written.

A template begins with a fixed directory, its *base*, followed by placeholders. The base also holds the catalog of the
checkpoints under it, so that a reader finds an object's checkpoint without knowing the placeholders' values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from entrepot_io.keys import shorten
from entrepot_io.policy.problems import Mark
from entrepot_io.policy.subject import Task

PLACEHOLDERS = ("host", "scope", "session", "pipeline", "run", "task")
PART_MAX_BYTES = 120
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Target:
    """Where checkpoints are written.

    Attributes:
        name: in ``targets``; the template itself if a rule names it directly.
        template: the URL, with placeholders.
        mark: its location in the policy.
        options: for fsspec's driver.
    """

    name: str
    template: str
    mark: Mark
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

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
            "host": task.host,
            "scope": scope,
            "session": session,
            "pipeline": task.pipeline,
            "run": task.run,
            "task": task.name,
        }
        return _PLACEHOLDER.sub(lambda found: part(values[found[1]]), self.template).rstrip("/")


def part(text: str) -> str:
    """Encode a string as one component of a path, on any file system; an empty one becomes ``_``.

    >>> part("manual__2026-01-01T00:00:00"), part("../x"), part("")
    ('manual__2026-01-01T00:00:00', '..%2Fx', '_')
    """
    quoted = quote(text, safe="=:@+,")
    if quoted.strip(".") == "":
        quoted = quoted.replace(".", "%2E") or "_"
    return shorten(quoted, PART_MAX_BYTES)


def base_of(template: str) -> str:
    """The directory part of a template before its first placeholder, without a trailing slash."""
    at = template.find("{")
    fixed = template if at < 0 else template[: template.rfind("/", 0, at) + 1]
    return fixed.rstrip("/")


def template_problem(template: str) -> str:
    """Why no checkpoint can ever be written under a template; empty: one can."""
    scheme = _SCHEME.match(template)
    if scheme is None and not template.startswith("/"):
        return (
            f"{template!r} is neither an absolute path nor a URL: tasks run in different folders, "
            "so write /absolute/path or scheme://..."
        )
    rest = _PLACEHOLDER.sub("x", template)
    if "{" in rest or "}" in rest:
        return f"the braces in {template!r} do not fit together"
    for name in _PLACEHOLDER.findall(template):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            return f"there is no placeholder {{{name}}}; there are {known}"
    start = scheme.end() if scheme else 0
    path = template[start:]
    if any(one in (".", "..") for one in path.split("/")):
        return f"{template!r} has a part '.' or '..', which file systems read differently"
    fixed = base_of(template)
    if not fixed[start:].strip("/") or (scheme and len(fixed) <= start):
        return f"{template!r} begins with no fixed folder: the catalog of its checkpoints needs one before the first {{"
    if scheme is not None and scheme[0] == "memory://":
        return f"{template!r} is in the memory of one process, and gone with it: name a place that outlives it"
    if scheme is not None and not _known(scheme[0]):
        return (
            f"fsspec knows no scheme {scheme[0]!r}: name a path, file://, s3://, gs://, abfs:// or another that it has"
        )
    return ""


def with_environment(value: Any) -> tuple[Any, list[str]]:
    """Substitute each ``${NAME}`` in a value, or in nested lists and mappings, from the environment.

    Returns:
        The value, and the names that are not set.
    """
    missing: list[str] = []

    def one(found: re.Match[str]) -> str:
        if (known := os.environ.get(found[1])) is None:
            missing.append(found[1])
        return known or ""

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return _VARIABLE.sub(one, item)
        if isinstance(item, list):
            return [walk(inner) for inner in item]
        if isinstance(item, dict):
            return {name: walk(inner) for name, inner in item.items()}
        return item

    return walk(value), missing


def _known(scheme: str) -> bool:
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        return True  # the writer reports that fsspec is missing
    return all(one in known_implementations or one in registry for one in scheme.removesuffix("://").split("::"))
