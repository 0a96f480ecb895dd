"""Phrases that several messages have in common."""

from __future__ import annotations


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the singular or the plural.

    >>> count_of(1, "object"), count_of(0, "object"), count_of(2, "process"), count_of(2, "memory rule")
    ('1 object', '0 objects', '2 processes', '2 memory rules')
    """
    ending = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"


def duration(seconds: int) -> str:
    """Return a duration in the largest unit that gives a whole number.

    >>> duration(86400), duration(5400), duration(3601)
    ('1 d', '90 min', '3601 s')
    """
    for unit, unit_seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % unit_seconds == 0:
            return f"{seconds // unit_seconds} {unit}"
    return f"{seconds} s"


def session_phrase(scope: str, session: str) -> str:
    """Return the phrase that names a session in a message.

    >>> session_phrase("default", "run-1")
    "session 'run-1' of scope 'default'"
    >>> session_phrase("default", "")
    "the scope's own session of 'default'"
    """
    return f"session {session!r} of scope {scope!r}" if session else f"the scope's own session of {scope!r}"
