"""Overrides by environment variables: ``ENTREPOT_POLICY__CHECKPOINT__MODE=async`` sets ``checkpoint.mode``.

Every key outside a list can be set this way, in upper case, its parts joined by two underscores; the value is parsed as
an unquoted YAML scalar. Overrides are checked like the file, and errors name the variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from entrepot_policy.schema.diagnostics import Diagnostic, Location, PolicyError
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, scalar_value, unicode_text

PREFIX = "ENTREPOT_POLICY__"


def find_overrides(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The overriding variables with their values."""
    variables = os.environ if environment is None else environment
    return {name: variables[name] for name in sorted(variables) if name.startswith(PREFIX)}


def apply_overrides(root: Node, variables: Mapping[str, str]) -> Node:
    """Apply overrides to a policy's node.

    Args:
        root: of the file.
        variables: variables and values.

    Raises:
        PolicyError: a variable names no key, or something that is not a mapping.
    """
    for name, text in variables.items():
        location = Location(f"environment variable {name}")
        path = unicode_text(name, location)[len(PREFIX) :].lower().split("__")
        if not all(path):
            raise PolicyError(
                [Diagnostic(location, f"the name lacks a key after {PREFIX!r}; an example is {PREFIX}CHECKPOINT__MODE")]
            )
        root = _set_value(root, path, ScalarNode(location, scalar_value(unicode_text(text, location))), location)
    return root


def _set_value(node: Node, path: list[str], value: ScalarNode, location: Location) -> Node:
    if not isinstance(node, MappingNode):
        raise PolicyError(
            [
                Diagnostic(
                    location,
                    f"it sets {path[0]!r} in a value that is not a mapping ({node.location}): lists cannot be set",
                )
            ]
        )
    key, rest = path[0], path[1:]
    entries = dict(node.entries)
    if rest:
        key_location, inner = entries.get(key, (location, MappingNode(location, {})))
        entries[key] = (key_location, _set_value(inner, rest, value, location))
    else:
        entries[key] = (location, value)
    return MappingNode(node.location, entries)
