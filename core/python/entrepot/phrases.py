"""Phrases that several messages have in common."""

from __future__ import annotations

import time


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


def human_bytes(count: int) -> str:
    """Format a byte count for people.

    >>> human_bytes(0), human_bytes(1536), human_bytes(3 << 30)
    ('0 B', '1.5 KiB', '3.0 GiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def age(since: float) -> str:
    """Format how long ago a time was (in seconds since 1970), for people."""
    seconds = max(0, int(time.time() - since))
    for limit, unit, unit_seconds in ((60, "s", 1), (3600, "min", 60), (86400, "h", 3600)):
        if seconds < limit:
            return f"{seconds // unit_seconds} {unit}"
    return f"{seconds // 86400} d"


def printable(text: str) -> str:
    """Return the text with its control characters, other unprintable ones and backslashes escaped.

    >>> print(printable("é 😀, one\\nline, C:\\\\"))
    é 😀, one\\nline, C:\\\\
    """
    return escape_unprintable(text.replace("\\", r"\\"))


def escape_unprintable(text: str) -> str:
    """Return the text with its unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
