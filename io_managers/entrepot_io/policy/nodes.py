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

from entrepot_io.policy.problems import Mark, PolicyError, Problem

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

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value.

    Attributes:
        mark: its location.
        value: its value in YAML 1.2.
    """

    mark: Mark
    value: Plain


@dataclass(frozen=True, slots=True)
class Listing:
    """A list.

    Attributes:
        mark: where it begins.
        items: its items.
    """

    mark: Mark
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping of strings to nodes.

    Attributes:
        mark: where it begins.
        entries: its values, with the locations of their keys.
    """

    mark: Mark
    entries: dict[str, tuple[Mark, Node]]


Node = Scalar | Listing | Table


def plain_value(text: str) -> Plain:
    """The value of an unquoted scalar in YAML 1.2's core schema.

    >>> plain_value("on"), plain_value("12"), plain_value("true"), plain_value("1:30")
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
            f"the policy {source} is YAML, and PyYAML is not installed: pip install 'entrepot[policy]' ({error})"
        ) from error
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES:
        raise PolicyError(
            [Problem(Mark(source), f"a policy has at most {MAX_FILE_BYTES} bytes, and this one has more")]
        )
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(source) if at is None else Mark(source, at.line + 1, at.column + 1)
        said = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise PolicyError([Problem(mark, f"this is not YAML: {said}")]) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise PolicyError([Problem(Mark(source), f"this is not YAML: {error}")]) from error
    except RecursionError as error:
        raise PolicyError([Problem(Mark(source), "the document is nested too deeply")]) from error
    if root is None:
        raise PolicyError([Problem(Mark(source, 1, 1), "the policy is empty: it has at least 'version: 1'")])
    return _Converter(source, yaml).node(root, 0)


class _Converter:
    def __init__(self, source: str, yaml: Any) -> None:
        self._source = source
        self._yaml = yaml
        self._open: set[int] = set()  # the nodes that contain the current one
        self._left = MAX_NODES

    def node(self, raw: Any, depth: int) -> Node:
        mark = Mark(self._source, raw.start_mark.line + 1, raw.start_mark.column + 1)
        self._left -= 1
        if self._left < 0:
            raise _only(mark, f"the policy has more than {MAX_NODES} values, aliases counted as often as they are used")
        if id(raw) in self._open:
            raise _only(mark, "what this anchor names contains an alias of itself: a cycle has no end")
        if depth > MAX_DEPTH:
            raise _only(mark, f"the policy is nested more than {MAX_DEPTH} levels deep")
        if raw.tag not in _TAGS:
            raise _only(mark, f"the tag {raw.tag!r} means nothing in a policy: leave it out")
        self._open.add(id(raw))
        try:
            if isinstance(raw, self._yaml.ScalarNode):
                return Scalar(mark, raw.value if raw.style else plain_value(raw.value))
            if isinstance(raw, self._yaml.SequenceNode):
                return Listing(mark, tuple(self.node(item, depth + 1) for item in raw.value))
            return self._table(raw, mark, depth)
        finally:
            self._open.discard(id(raw))

    def _table(self, raw: Any, mark: Mark, depth: int) -> Table:
        entries: dict[str, tuple[Mark, Node]] = {}
        for key, value in raw.value:
            at = Mark(self._source, key.start_mark.line + 1, key.start_mark.column + 1)
            if not isinstance(key, self._yaml.ScalarNode):
                raise _only(at, "the keys of a policy are texts")
            name = key.value
            if name in entries:
                raise _only(at, f"the key {name!r} is here twice: the first is at {entries[name][0]}")
            entries[name] = (at, self.node(value, depth + 1))
        return Table(mark, entries)


def _only(mark: Mark, text: str) -> PolicyError:
    return PolicyError([Problem(mark, text)])
