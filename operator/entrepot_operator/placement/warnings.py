"""Unexpected outcomes of an injection, and their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from entrepot.errors import EntrepotError

# Codes that need attention; the others only explain.
PROBLEM_CODES = frozenset({"unknown-objects", "lost-objects", "stale-nodes", "conflict", "no-holder", "no-store"})


@dataclass(frozen=True, slots=True)
class PlacementWarning:
    """One outcome worth reporting.

    Attributes:
        code: machine-readable, such as ``"conflict"``.
        text: human-readable.
    """

    code: str
    text: str

    @property
    def is_problem(self) -> bool:
        """Whether it needs attention."""
        return self.code in PROBLEM_CODES


class PlacementConflict(EntrepotError):
    """The pod's own constraints, or the state of the data, contradict the request; nothing was changed."""

    code: ClassVar[str] = "placement_conflict"
    short_code: ClassVar[str] = "E605"


def summarize_names(names: list[str], limit: int = 3) -> str:
    """The first few of many names, for a message.

    >>> summarize_names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
