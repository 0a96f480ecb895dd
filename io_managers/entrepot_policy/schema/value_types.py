"""Kinds of values in a policy: each parses a node, reports problems, and describes itself as JSON schema.

A policy's definition is built from these once (``definition``), so the parser and the schema for editors cannot differ.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrepot_policy.schema.diagnostics import Diagnostic
from entrepot_policy.schema.yaml_nodes import MappingNode, Node, ScalarNode, SequenceNode

SHOWN = 60
MOST = 10**12  # upper limit of all numbers; nothing in a policy is larger

Diagnostics = list[Diagnostic]
Schema = dict[str, Any]


class Kind(ABC):
    """What a value may be."""

    @abstractmethod
    def read(self, node: Node, problems: Diagnostics) -> Any:
        """The value, or None with a problem added."""

    @abstractmethod
    def schema(self) -> Schema:
        """The equivalent JSON schema."""


@dataclass(frozen=True)
class Text(Kind):
    """A string.

    Attributes:
        what: its name in messages: "a glob".
        pattern: that must match the whole string; in the subset of regular expressions common to Python and ECMAScript.
        example: a valid string.
    """

    what: str
    pattern: str = ".+"
    example: str = ""

    def read(self, node: Node, problems: Diagnostics) -> str | None:
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            if re.fullmatch(self.pattern, node.value, re.DOTALL):
                return node.value
        elif isinstance(node, ScalarNode) and node.value is not None:
            wrong(node, problems, f"{self.what}; YAML does not read this as a string: put it in quotes")
            return None
        wrong(node, problems, self.what + (f", such as {self.example!r}" if self.example else ""))
        return None

    def schema(self) -> Schema:
        # ECMAScript has no inline flag for DOTALL; [\s\S] means the same in both languages.
        return {"type": "string", "pattern": whole(self.pattern.replace(".+", r"[\s\S]+"))}


@dataclass(frozen=True)
class Enum(Kind):
    """One of several words."""

    words: tuple[str, ...]

    def read(self, node: Node, problems: Diagnostics) -> str | None:
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value in self.words:
            return node.value
        wrong(node, problems, "one of " + ", ".join(self.words))
        return None

    def schema(self) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Boolean(Kind):
    """True or false."""

    def read(self, node: Node, problems: Diagnostics) -> bool | None:
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return node.value
        wrong(node, problems, "true or false")
        return None

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Integer(Kind):
    """An integer from ``least`` to ``most``."""

    least: int = 0
    most: int = MOST

    def read(self, node: Node, problems: Diagnostics) -> int | None:
        number = number_of(node)
        if number is not None and self.least <= number <= self.most and number == int(number):
            return int(number)
        wrong(node, problems, f"a whole number from {self.least} to {self.most}")
        return None

    def schema(self) -> Schema:
        # JSON schema's "integer" accepts 2.0 too, and so does read().
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number(Kind):
    """A number from ``least`` to ``most``."""

    least: float = 0.0
    most: float = float(MOST)

    def read(self, node: Node, problems: Diagnostics) -> float | None:
        if (number := number_of(node)) is not None and self.least <= number <= self.most:
            return float(number)
        wrong(node, problems, f"a number from {self.least:g} to {self.most:g}")
        return None

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Quantity(Kind):
    """A number, or a string of a number and a unit.

    Attributes:
        what: its name in messages: "a time".
        units: the factor of each unit.
        example: a valid string.
    """

    what: str
    units: Mapping[str, float]
    example: str

    @property
    def pattern(self) -> str:
        """Of the string form."""
        names = "|".join(sorted((re.escape(unit) for unit in self.units), key=len, reverse=True))
        return rf"[0-9]{{1,12}}(\.[0-9]{{1,9}})? ?({names})"

    def read(self, node: Node, problems: Diagnostics) -> float | None:
        number = number_of(node)
        if number is not None and 0 <= number <= MOST:
            return float(number)
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and re.fullmatch(self.pattern, node.value):
            return self.parse(node.value)
        wrong(node, problems, f"{self.what}, such as {self.example!r}")
        return None

    def parse(self, text: str) -> float:
        """The number that a valid string means."""
        number = re.match(r"[0-9.]+", text)
        assert number is not None
        return float(number[0]) * self.units[text[number.end() :].strip()]

    def schema(self) -> Schema:
        return {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": MOST},
                {"type": "string", "pattern": whole(self.pattern)},
            ]
        }


SECONDS = Quantity(
    "a time in seconds", {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}, "90s"
)
BYTES = Quantity(
    "a number of bytes",
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    | {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "64MiB",
)
COUNT = Quantity("a number", {"": 1.0}, "3")


@dataclass(frozen=True, slots=True)
class Limit:
    """One side of a range.

    Attributes:
        sign: ``>``, ``>=``, ``<`` or ``<=``.
        number: the limit.
        text: as written.
    """

    sign: str
    number: float
    text: str

    def holds(self, number: float) -> bool:
        """Whether a number satisfies the bound."""
        if self.sign == ">":
            return number > self.number
        if self.sign == ">=":
            return number >= self.number
        return number < self.number if self.sign == "<" else number <= self.number


@dataclass(frozen=True)
class Comparison(Kind):
    """A string such as ``">60"`` or ``"<=1GiB"``."""

    measure: Quantity

    @property
    def _pattern(self) -> str:
        bare = r"[0-9]{1,12}(\.[0-9]{1,9})?"
        return rf"(>=|<=|>|<) ?({bare}|{self.measure.pattern})"

    def read(self, node: Node, problems: Diagnostics) -> Limit | None:
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and re.fullmatch(self._pattern, node.value):
            sign = ">=" if node.value[:2] == ">=" else "<=" if node.value[:2] == "<=" else node.value[0]
            rest = node.value[len(sign) :].strip()
            number = float(rest) if re.fullmatch(r"[0-9.]+", rest) else self.measure.parse(rest)
            return Limit(sign, number, node.value)
        wrong(node, problems, f"a comparison with {self.measure.what}, such as '>{self.measure.example}'")
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": whole(self._pattern)}


@dataclass(frozen=True)
class List(Kind):
    """A list with at least one item, or, with ``bare``, a single item without a list."""

    item: Kind
    bare: bool = False

    def read(self, node: Node, problems: Diagnostics) -> tuple[Any, ...] | None:
        if isinstance(node, SequenceNode):
            if not node.items:
                wrong(node, problems, "a list with at least one item")
                return None
            found = [self.item.read(value, problems) for value in node.items]
            return None if any(value is None for value in found) else tuple(found)
        if self.bare:
            value = self.item.read(node, problems)
            return None if value is None else (value,)
        wrong(node, problems, "a list")
        return None

    def schema(self) -> Schema:
        items = {"type": "array", "items": self.item.schema(), "minItems": 1}
        return {"anyOf": [self.item.schema(), items]} if self.bare else items


@dataclass(frozen=True)
class Scalars(Kind):
    """A mapping to strings, numbers and booleans, arbitrarily nested: passed on unchanged."""

    def read(self, node: Node, problems: Diagnostics) -> dict[str, Any] | None:
        if isinstance(node, MappingNode):
            return {name: _python(value) for name, (_, value) in node.entries.items()}
        wrong(node, problems, "a mapping")
        return None

    def schema(self) -> Schema:
        return {"type": "object"}


def whole(pattern: str) -> str:
    """A pattern anchored to the whole string, in Python and in ECMAScript (where ``$`` is the very end)."""
    return rf"^(?:{pattern})$(?!\n)"


def number_of(node: Node) -> float | None:
    """The number that a node is, if it is one."""
    if isinstance(node, ScalarNode) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return node.value
    return None


def _python(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [_python(item) for item in node.items]
    return {name: _python(value) for name, (_, value) in node.entries.items()}


def wrong(node: Node, problems: Diagnostics, wanted: str) -> None:
    """Report that a node is not what is wanted there."""
    if isinstance(node, ScalarNode):
        shown = "nothing" if node.value is None else repr(node.value)
    else:
        shown = "a list" if isinstance(node, SequenceNode) else "a mapping"
    if len(shown) > SHOWN:
        shown = shown[:SHOWN] + "..."
    problems.append(Diagnostic(node.location, f"got {shown}, expected {wanted}"))
