"""YAML as nodes with locations.

PyYAML composes the nodes: Airflow, Dagster and Kedro all include it, and its nodes have line and column. Its own
conversion of values is not used, because it follows YAML 1.1, where the key ``on`` is true and ``1:30`` is 90. Values
are interpreted by YAML 1.2's core schema, as in editors that check the file against the published JSON schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_policy.schema.diagnostics import Diagnostic, Location, PolicyError

MAX_FILE_BYTES = 256 << 10
MAX_NODES = 50_000  # aliases count each time they are used
MAX_DEPTH = 32

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# Tags that PyYAML gives to untagged nodes; some exist only in YAML 1.1, which makes no difference here.
_IMPLICIT = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge", "value")
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in _IMPLICIT)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A single value.

    Attributes:
        location: its location.
        value: its value in YAML 1.2.
    """

    location: Location
    value: ScalarValue


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list.

    Attributes:
        location: where it begins.
        items: its items.
    """

    location: Location
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping of strings to nodes.

    Attributes:
        location: where it begins.
        entries: its values, with the locations of their keys.
    """

    location: Location
    entries: dict[str, tuple[Location, Node]]


Node = ScalarNode | SequenceNode | MappingNode


def scalar_value(text: str) -> ScalarValue:
    """The value of an unquoted scalar in YAML 1.2's core schema.

    >>> scalar_value("on"), scalar_value("12"), scalar_value("true"), scalar_value("1:30")
    ('on', 12, True, '1:30')
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text) and len(text) < 20:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def unicode_text(text: str, location: Location) -> str:
    """A text whose surrogates, which an escape or a variable can contain, are the characters that they mean in pairs.

    Raises:
        PolicyError: one has no partner.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise _single_error(location, f"{text!r} is not valid Unicode") from error


def compose(text: str, source: str) -> Node:
    """Parse one YAML document.

    Args:
        text: the document.
        source: the file's name, for messages.

    Raises:
        PolicyError: it is not YAML, is empty, or has several documents, a duplicate key, a key that is not a string, a
            tag, or a cycle of aliases, or is too large or too deep.
        InvalidArgument: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise InvalidArgument(
            f"the policy {source} requires PyYAML, which is not installed: pip install 'entrepot[policy]' ({error})"
        ) from error
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES:
        raise PolicyError(
            [Diagnostic(Location(source), f"the policy is larger than the maximum of {MAX_FILE_BYTES} bytes")]
        )
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        yaml_mark = error.problem_mark or error.context_mark
        location = Location(source) if yaml_mark is None else Location(source, yaml_mark.line + 1, yaml_mark.column + 1)
        description = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise PolicyError([Diagnostic(location, f"invalid YAML: {description}")]) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise PolicyError([Diagnostic(Location(source), f"invalid YAML: {error}")]) from error
    except RecursionError as error:
        raise PolicyError([Diagnostic(Location(source), "the document is nested too deeply")]) from error
    if root is None:
        raise PolicyError(
            [Diagnostic(Location(source, 1, 1), "the policy is empty: it must contain at least 'version: 1'")]
        )
    return _Converter(source, yaml).node(root, 0)


class _Converter:
    def __init__(self, source: str, yaml: Any) -> None:
        self._source = source
        self._yaml = yaml
        self._ancestors: set[int] = set()  # the nodes that contain the current one
        self._remaining = MAX_NODES

    def node(self, yaml_node: Any, depth: int) -> Node:
        location = Location(self._source, yaml_node.start_mark.line + 1, yaml_node.start_mark.column + 1)
        self._remaining -= 1
        if self._remaining < 0:
            raise _single_error(location, f"the policy has more than {MAX_NODES} values, counting each use of an alias")
        if id(yaml_node) in self._ancestors:
            raise _single_error(location, "this anchor contains an alias of itself: cycles are not allowed")
        if depth > MAX_DEPTH:
            raise _single_error(location, f"the policy is nested more than {MAX_DEPTH} levels deep")
        if yaml_node.tag not in _TAGS:
            raise _single_error(location, f"the tag {yaml_node.tag!r} is not supported in a policy: remove it")
        self._ancestors.add(id(yaml_node))
        try:
            if isinstance(yaml_node, self._yaml.ScalarNode):
                value = unicode_text(yaml_node.value, location)
                return ScalarNode(location, value if yaml_node.style else scalar_value(value))
            if isinstance(yaml_node, self._yaml.SequenceNode):
                return SequenceNode(location, tuple(self.node(item, depth + 1) for item in yaml_node.value))
            return self._mapping(yaml_node, location, depth)
        finally:
            self._ancestors.discard(id(yaml_node))

    def _mapping(self, yaml_node: Any, location: Location, depth: int) -> MappingNode:
        entries: dict[str, tuple[Location, Node]] = {}
        for key, value in yaml_node.value:
            key_location = Location(self._source, key.start_mark.line + 1, key.start_mark.column + 1)
            if not isinstance(key, self._yaml.ScalarNode):
                raise _single_error(key_location, "keys in a policy must be strings")
            name = unicode_text(key.value, key_location)
            if name in entries:
                raise _single_error(key_location, f"duplicate key {name!r}: it is already set at {entries[name][0]}")
            entries[name] = (key_location, self.node(value, depth + 1))
        return MappingNode(location, entries)


def _single_error(location: Location, text: str) -> PolicyError:
    return PolicyError([Diagnostic(location, text)])
