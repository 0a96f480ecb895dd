"""Matching: which outputs and tasks a rule applies to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from entrepot_policy.rules.match_target import Subject
from entrepot_policy.schema.limit import Limit

_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Match:
    """Conditions of a match; without any, everything matches.

    Attributes:
        globs: by key; for each key, one of its globs must match.
        size: bounds on the bytes of the value, all of which must hold.
    """

    globs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    size: tuple[Limit, ...] = ()

    def matches(self, subject: Subject) -> bool:
        """Whether a subject matches. A bound on the size never matches a subject without a size."""
        if not all(
            any(fnmatchcase(text, glob) for text in _match_texts(subject, key) for glob in globs)
            for key, globs in self.globs.items()
        ):
            return False
        return not self.size or (subject.nbytes is not None and all(limit.holds(subject.nbytes) for limit in self.size))

    def subsumes(self, later: Match) -> bool:
        """Whether this certainly matches everything that ``later`` matches, so that ``later`` never decides.

        Conservative: two differently written but equivalent globs are not detected.
        """
        for key, globs in self.globs.items():
            others = later.globs.get(key)
            if others is None:
                # A key for which every subject has a text, and a glob that matches any text.
                if "*" in globs and key in ("task", "pipeline", "key", "type", "orchestrator"):
                    continue
                return False
            if not all(any(_glob_subsumes(glob, other) for glob in globs) for other in others):
                return False
        return all(any(_limit_implies(other, own) for other in later.size) for own in self.size)

    def __str__(self) -> str:
        conditions = [f"{key}: {' | '.join(globs)}" for key, globs in self.globs.items()]
        conditions += [f"size: {limit.text}" for limit in self.size]
        return ", ".join(conditions) or "everything"


def empty_range(bounds: tuple[Limit, ...]) -> bool:
    """Whether no number from 0 on satisfies all bounds."""
    low, low_open, high, high_open = 0.0, False, float("inf"), False
    for limit in bounds:
        strict = limit.sign in (">", "<")
        if limit.sign.startswith(">"):
            if (limit.number, strict) > (low, low_open):
                low, low_open = limit.number, strict
        elif limit.number < high or (limit.number == high and strict):
            high, high_open = limit.number, strict
    return low > high or (low == high and (low_open or high_open))


def _match_texts(subject: Subject, key: str) -> tuple[str, ...]:
    task = subject.task
    if key == "tag":
        return tuple(subject.tags)
    if key == "task":
        return _task_names(task.name)
    if key in ("orchestrator", "pipeline"):
        return (getattr(task, key),)
    text: str = getattr(subject, key)
    # No asset is not the same as an empty name: "*" matches only outputs that have one.
    return (text,) if text or key in ("key", "type") else ()


def _task_names(name: str) -> tuple[str, ...]:
    """A mapped instance, ``train[3]``, also matches by the name of its task."""
    return (name, name.rpartition("[")[0]) if name.endswith("]") and not name.startswith("[") else (name,)


def _glob_subsumes(glob: str, other: str) -> bool:
    if glob in ("*", other):
        return True
    if not _WILD & set(other):
        return fnmatchcase(other, glob)
    head = glob[:-1]
    return glob.endswith("*") and not _WILD & set(head) and other.startswith(head)


def _limit_implies(limit: Limit, other: Limit) -> bool:
    """Whether every number that satisfies ``limit`` satisfies ``other``."""
    if limit.sign[0] != other.sign[0]:
        return False
    if limit.number == other.number:
        return limit.sign == other.sign or len(limit.sign) == 1
    return limit.number > other.number if limit.sign[0] == ">" else limit.number < other.number
