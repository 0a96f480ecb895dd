"""The keys of JSON objects, kept once for all of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class KeyFit(enum.Enum):
    """How an object's keys fit a header."""

    KNOWN = "all keys are in the header"
    EXTENDS = "some keys are in the header, and others are appended to it"
    DISJOINT = "no key is in the header, which therefore stays as it is"


class KeyHeader:
    """The keys of the objects so far, in the order in which they were first seen.

    An object with a part of the keys has nulls for the others; one with more extends the header; one that has nothing
    in common with it is of another kind, and has no place in this table.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = dict.fromkeys(keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in order."""
        return tuple(self._keys)

    def fit(self, keys: Iterable[str]) -> KeyFit:
        """How these keys fit, without a change of the header."""
        given = dict.fromkeys(keys)
        if given.keys() <= self._keys.keys():
            return KeyFit.KNOWN
        return KeyFit.EXTENDS if not self._keys or given.keys() & self._keys.keys() else KeyFit.DISJOINT

    def add(self, keys: Iterable[str]) -> KeyFit:
        """As :meth:`fit`, and extend the header if that is what they do."""
        given = list(keys)
        fit = self.fit(given)
        if fit is KeyFit.EXTENDS:
            self._keys.update(dict.fromkeys(given))
        return fit
