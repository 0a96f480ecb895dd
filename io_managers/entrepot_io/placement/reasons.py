"""Unexpected outcomes of an injection, and their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from entrepot.errors import EntrepotError

# Codes that need attention; the others only explain.
PROBLEMS = frozenset({"unknown-objects", "lost-objects", "stale-nodes", "conflict", "no-holder", "no-store"})


@dataclass(frozen=True, slots=True)
class Reason:
    """One outcome worth reporting.

    Attributes:
        code: machine-readable, such as ``"conflict"``.
        text: human-readable.
    """

    code: str
    text: str

    @property
    def problem(self) -> bool:
        """Whether it needs attention."""
        return self.code in PROBLEMS


class PlacementConflict(EntrepotError):
    """The pod's own constraints, or the state of the data, contradict the request; nothing was changed."""

    code: ClassVar[str] = "placement_conflict"


def some(names: list[str], most: int = 3) -> str:
    """The first few of many names, for a message.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
