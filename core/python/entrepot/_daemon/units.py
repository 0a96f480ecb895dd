"""Durations and sizes as people write them: ``15min``, ``4GiB``."""

from __future__ import annotations

import math
import re

from entrepot.errors import InvalidArgument

_UNIT_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_UNIT_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(s|min|h|d)?")
_SIZE = re.compile(r"0*([1-9][0-9]*)(KiB|MiB|GiB|TiB)?")  # syntax of entrepotd --size, above 0


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    >>> parse_duration("90"), parse_duration("15min"), parse_duration("1.5h"), parse_duration("7d")
    (90.0, 900.0, 5400.0, 604800.0)

    Raises:
        InvalidArgument: it is not a finite number of 0 or more, with a unit or without.
    """
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNIT_SECONDS[match[2] or "s"] if match else math.inf
    if not math.isfinite(seconds):
        raise InvalidArgument(
            "a duration must be a number of seconds, 0 or more, or a number with unit s, min, h or d, such as 90s, "
            f"15min, 24h or 7d, but got {text!r}"
        )
    return seconds


def parse_size(text: str) -> int:
    """Return the bytes of a size, which is above 0.

    >>> parse_size("512MiB"), parse_size("65536")
    (536870912, 65536)

    Raises:
        InvalidArgument: it is not a whole number above 0, with a unit or without.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            "a size must be a whole number with unit KiB, MiB, GiB or TiB, such as 3GiB or 512MiB, or a number of "
            f"bytes without a unit, above 0, but got {text!r}"
        )
    return int(match[1]) * _UNIT_BYTES[match[2] or ""]
