"""Problems in a policy, each with file, line and column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from entrepot.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a policy.

    Attributes:
        source: the file, or the environment variable that set the value.
        line, column: from 1 on; 0 for sources without lines.
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    @property
    def short(self) -> str:
        """File and line, as logs name a rule."""
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem.

    Attributes:
        location: its location.
        text: what is wrong, with which value, and what to do.
    """

    location: Location
    text: str

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


Diagnostics = list[Diagnostic]


class PolicyError(InvalidArgument):
    """A policy that cannot be used. The message has a line for each problem.

    Attributes:
        problems: all problems, in file order.
    """

    def __init__(self, problems: Iterable[Diagnostic]) -> None:
        self.problems = tuple(
            sorted(
                problems, key=lambda problem: (problem.location.source, problem.location.line, problem.location.column)
            )
        )
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[PolicyError], tuple[tuple[Diagnostic, ...]]]:
        return (PolicyError, (self.problems,))
