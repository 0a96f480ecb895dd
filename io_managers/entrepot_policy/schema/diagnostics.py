"""Problems in a policy, each with file, line and column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

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
# Paths of what was left out of a policy because it is wrong, such as ("checkpoint", "rules", 0) or ("targets", "s3").
LeftOut = frozenset[tuple[int | str, ...]]


def lacks_a_section(left_out: LeftOut) -> bool:
    """Whether a whole section was left out, or has a name that is not known."""
    return any(len(path) == 1 and path != ("version",) for path in left_out)


def did_you_mean(word: str, known_words: Iterable[str], otherwise: str) -> str:
    """Return the hint that names what was probably meant, followed by what is known.

    >>> did_you_mean("mach", ["match", "when"], "known keys: match, when")
    "did you mean 'match'? Known keys: match, when"
    >>> did_you_mean("other", ["match", "when"], "known keys: match, when")
    'known keys: match, when'
    """
    matches = get_close_matches(word, known_words, n=1)
    return f"did you mean {matches[0]!r}? {otherwise[0].upper()}{otherwise[1:]}" if matches else otherwise


class PolicyError(InvalidArgument):
    """A policy that cannot be used. The message has a line for each problem.

    Attributes:
        problems: all problems, in file order.
    """

    short_code = "E701"

    def __init__(self, problems: Iterable[Diagnostic]) -> None:
        self.problems = tuple(
            sorted(
                problems, key=lambda problem: (problem.location.source, problem.location.line, problem.location.column)
            )
        )
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[PolicyError], tuple[tuple[Diagnostic, ...]]]:
        return (PolicyError, (self.problems,))
