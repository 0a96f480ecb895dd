"""Types of values in a policy, for the models of ``definition``: what pydantic lacks, as annotations.

Each says in its own words what it expects: pydantic's words name Python's types, which a policy's author does not use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from entrepot_policy.schema.limit import Limit

EXPECTED = "expected"  # the type of every error of Expected
MOST = 10**12  # upper limit of all numbers; nothing in a policy is larger

# Annotations are compared by identity (eq=False), because some hold mappings, and typing wants to hash them.


@dataclass(frozen=True, eq=False)
class Expected:
    """A value's name in messages, instead of pydantic's description of what is wrong with it.

    Attributes:
        what: "a glob".
        example: a valid value; empty: none is shown.
        string: whether only strings are valid, so that quotes may be all that is missing.
    """

    what: str
    example: str = ""
    string: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source),
            EXPECTED,
            custom_error_message="not what is expected",
            custom_error_context={"what": self.what, "example": self.example, "string": self.string},
        )


@dataclass(frozen=True, eq=False)
class OneOf:
    """One of the words of a ``Literal``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return Expected("one of " + ", ".join(get_args(source))).__get_pydantic_core_schema__(source, handler)


@dataclass(frozen=True, eq=False)
class Integer:
    """A whole number from ``least`` to ``most``. Like JSON schema's "integer", it may be written as 2.0."""

    least: int = 1
    most: int = MOST

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(
            Annotated[
                source,
                Field(ge=self.least, le=self.most),
                BeforeValidator(_without_fraction),
                Expected(f"a whole number from {self.least} to {self.most}"),
            ]
        )


@dataclass(frozen=True, eq=False)
class Number:
    """A number from ``least`` to ``most``."""

    least: float = 0.0
    most: float = float(MOST)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        wanted = Expected(f"a number from {self.least:g} to {self.most:g}")
        return handler.generate_schema(Annotated[source, Field(ge=float(self.least), le=float(self.most)), wanted])


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number, or a string of a number and a unit.

    Attributes:
        what: its name in messages: "a time".
        units: the factor of each unit.
        example: a valid string, with the unit in which defaults are shown.
    """

    what: str
    units: Mapping[str, float]
    example: str

    @property
    def pattern(self) -> str:
        """Of the string form."""
        names = "|".join(sorted((re.escape(unit) for unit in self.units), key=len, reverse=True))
        return rf"[0-9]{{1,12}}(\.[0-9]{{1,9}})? ?({names})"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        string = Annotated[str, Field(pattern=whole(self.pattern)), AfterValidator(self.parse)]
        return handler.generate_schema(
            Annotated[
                Annotated[source, Field(ge=0.0, le=float(MOST))] | string,
                Expected(self.what, self.example),
            ]
        )

    def parse(self, text: str) -> float:
        """The number that a valid string means."""
        number = re.match(r"[0-9.]+", text)
        assert number is not None
        return float(number[0]) * self.units[text[number.end() :].strip()]

    def text(self, number: float) -> str:
        """A number as a string with a unit."""
        unit = self.example.lstrip("0123456789")
        return f"{number / self.units[unit]:g}{unit}"


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


@dataclass(frozen=True, eq=False)
class Comparison:
    """A string such as ``">60"`` or ``"<=1GiB"``, which becomes a ``Limit``."""

    measure: Quantity

    @property
    def pattern(self) -> str:
        """Of the string."""
        bare = r"[0-9]{1,12}(\.[0-9]{1,9})?"
        return rf"(>=|<=|>|<) ?({bare}|{self.measure.pattern})"

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(
            Annotated[
                str,
                Field(pattern=whole(self.pattern)),
                AfterValidator(self.parse),
                Expected(f"a comparison with {self.measure.what}", f">{self.measure.example}"),
            ]
        )

    def parse(self, text: str) -> Limit:
        """The limit that a valid string means."""
        sign = text[:2] if text[1] == "=" else text[0]
        rest = text[len(sign) :].strip()
        number = float(rest) if re.fullmatch(r"[0-9.]+", rest) else self.measure.parse(rest)
        return Limit(sign, number, text)


@dataclass(frozen=True, eq=False)
class Items:
    """A list with at least one item, or, with ``bare``, a single item without a list; always a tuple once read."""

    bare: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Not as a tuple: pydantic then counts only good items, and so calls a list of bad ones too short.
        kind: Any = get_args(source)[0]
        schema = handler.generate_schema(Annotated[list[kind], Field(min_length=1), AfterValidator(tuple)])
        return core_schema.no_info_before_validator_function(_as_list, schema) if self.bare else schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        array = handler(schema)
        return {"anyOf": [array["items"], array]} if self.bare else array


@dataclass(frozen=True, eq=False)
class Omittable:
    """A key that may be omitted, and is None then; but ``key:`` with nothing behind it is an error.

    Attributes:
        default: what holds then, for the reference.
    """

    default: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (kind,) = (kind for kind in get_args(source) if kind is not NoneType)
        return handler.generate_schema(kind)


def whole(pattern: str) -> str:
    """A pattern anchored to the whole string, in Python and in ECMAScript (where ``$`` is the very end)."""
    return rf"^(?:{pattern})$(?!\n)"


def _without_fraction(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]
