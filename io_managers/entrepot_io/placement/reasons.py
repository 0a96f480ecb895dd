"""What an injection could not do, or did otherwise than one might expect, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from entrepot.errors import EntrepotError

# Reasons that somebody should look at; the others only explain.
PROBLEMS = frozenset({"unknown-objects", "lost-objects", "stale-nodes", "conflict", "no-holder", "no-store"})


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is worth telling.

    Attributes:
        code: for programs, such as ``"conflict"``.
        text: for people.
    """

    code: str
    text: str

    @property
    def problem(self) -> bool:
        """Whether somebody should look at it."""
        return self.code in PROBLEMS


class PlacementConflict(EntrepotError):
    """The pod's own constraints, or the state of the data, contradict what was asked for; nothing was changed."""

    code: ClassVar[str] = "placement_conflict"


def some(names: list[str], most: int = 3) -> str:
    """The first few of many names, for a message.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
