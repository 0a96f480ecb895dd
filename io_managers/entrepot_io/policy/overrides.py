"""Overrides by environment variables: ``ENTREPOT_POLICY__CHECKPOINT__MODE=async`` sets ``checkpoint.mode``.

Every key outside a list can be set this way, in upper case, its parts joined by two underscores; the value is parsed as
an unquoted YAML scalar. Overrides are checked like the file, and errors name the variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from entrepot_io.policy.nodes import Node, Scalar, Table, plain_value
from entrepot_io.policy.problems import Mark, PolicyError, Problem

PREFIX = "ENTREPOT_POLICY__"


def overrides(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The overriding variables with their values."""
    found = os.environ if environment is None else environment
    return {name: found[name] for name in sorted(found) if name.startswith(PREFIX)}


def overridden(root: Node, set_by: Mapping[str, str]) -> Node:
    """Apply overrides to a policy's node.

    Args:
        root: of the file.
        set_by: variables and values.

    Raises:
        PolicyError: a variable names no key, or something that is not a mapping.
    """
    for name, text in set_by.items():
        mark = Mark(f"environment variable {name}")
        path = name[len(PREFIX) :].lower().split("__")
        if not all(path):
            raise PolicyError(
                [Problem(mark, f"the name has no key after {PREFIX!r}, such as {PREFIX}CHECKPOINT__MODE")]
            )
        root = _put(root, path, Scalar(mark, plain_value(text)), mark)
    return root


def _put(node: Node, path: list[str], value: Scalar, mark: Mark) -> Node:
    if not isinstance(node, Table):
        raise PolicyError(
            [Problem(mark, f"it sets {path[0]!r} in what is no mapping ({node.mark}): lists cannot be set")]
        )
    key, rest = path[0], path[1:]
    entries = dict(node.entries)
    if rest:
        at, inner = entries.get(key, (mark, Table(mark, {})))
        entries[key] = (at, _put(inner, rest, value, mark))
    else:
        entries[key] = (mark, value)
    return Table(node.mark, entries)
