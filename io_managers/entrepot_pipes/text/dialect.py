"""What a text of records looks like: everything that a parser and a writer have to agree on."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from entrepot.errors import InvalidArgument

Kind = Literal["csv", "json"]
Quoting = Literal["minimal", "all", "none"]
Layout = Literal["lines", "array"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": ("csv", "json"),
    "quoting": ("minimal", "all", "none"),
    "layout": ("lines", "array"),
    "newline": ("\n", "\r\n", "\r"),
}


@dataclass(frozen=True)
class Dialect:
    """How records are written as text.

    Args:
        kind: ``"csv"`` (also with other delimiters), or ``"json"``: one object per record.
        delimiter: between two fields, one character.
        header: whether the first record has the columns' names.
        quote: around fields; ``None``: fields are never quoted.
        escape: before a character that stands for itself; ``None``: a quote within quotes is doubled.
        newline: at the end of records that are written; all kinds are understood when they are read.
        nulls: fields that mean null unless they are quoted; the first of them is written.
        encoding: of the text. Byte order marks are understood, and never written.
        quoting: which fields are quoted when they are written: those that need it, all but nulls, or none (a field that
            would need it is refused).
        layout: JSON only: ``"lines"``, one object after the other, or ``"array"``, one array of objects.

    Raises:
        InvalidArgument: a value that no text can have.
    """

    kind: Kind = "csv"
    delimiter: str = ","
    header: bool = True
    quote: str | None = '"'
    escape: str | None = None
    newline: str = "\n"
    nulls: tuple[str, ...] = ("",)
    encoding: str = "utf-8"
    quoting: Quoting = "minimal"
    layout: Layout = "lines"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                allowed = ", ".join(map(repr, choices))
                raise InvalidArgument(f"a dialect's {name} is one of {allowed}, not {getattr(self, name)!r}")
        single = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        given = {name: value for name, value in single.items() if value is not None or name == "delimiter"}
        for name, value in given.items():
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise InvalidArgument(
                    f"a dialect's {name} is one ASCII character other than an end of line or NUL, not {value!r}"
                )
        if len(set(given.values())) != len(given):
            raise InvalidArgument(f"a dialect's delimiter, quote and escape differ from each other, unlike {given}")
        if not isinstance(self.nulls, tuple) or not self.nulls or not all(isinstance(null, str) for null in self.nulls):
            raise InvalidArgument(f"a dialect's nulls are one or more texts, not {self.nulls!r}")
        marks = {*given.values(), "\r", "\n"}
        if self.kind == "csv" and any(set(null) & marks for null in self.nulls):
            raise InvalidArgument(
                f"a dialect's nulls {self.nulls!r} contain neither its delimiter, quote or escape nor an end of line"
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InvalidArgument(f"a dialect's encoding is one that Python knows, not {self.encoding!r}") from None

    def to_dict(self) -> dict[str, Any]:
        """The dialect as plain values, for headers and profiles."""
        return {**asdict(self), "nulls": list(self.nulls)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Dialect:
        """The dialect that :meth:`to_dict` described; what is missing has its default.

        Raises:
            InvalidArgument: a key or value that no dialect has.
        """
        names = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - names)
        if unknown:
            raise InvalidArgument(f"a dialect has no {unknown[0]!r}; it has {', '.join(sorted(names))}")
        given = dict(values)
        if isinstance(given.get("nulls"), (list, tuple)):
            given["nulls"] = tuple(given["nulls"])
        if not isinstance(given.get("header", True), bool):
            raise InvalidArgument(f"a dialect's header is true or false, not {given['header']!r}")
        return cls(**given)
