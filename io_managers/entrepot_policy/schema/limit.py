"""One side of a range."""

from __future__ import annotations

from dataclasses import dataclass


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
