"""Kubernetes quantities."""

from __future__ import annotations

import re
from decimal import Decimal
from math import ceil

from entrepot.errors import InvalidArgument

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?")
_SUFFIXES = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000)}
_SUFFIXES |= {unit: Decimal(1000) ** (place + 2) for place, unit in enumerate("MGTPE")}
_SUFFIXES |= {f"{unit}i": Decimal(1024) ** (place + 1) for place, unit in enumerate("KMGTPE")}


def parse(text: str, where: str) -> int:
    """Parse a quantity into an integer, rounded up.

    Args:
        text: such as ``"8Gi"``, ``"0.5Gi"``, ``"1e9"``.
        where: its location, for messages.

    Raises:
        InvalidArgument: it is not a quantity.

    >>> parse("1.5Ki", "here"), parse("1e3", "here"), parse("100m", "here")
    (1536, 1000, 1)
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument(f"{where} must be a quantity such as 8Gi, not {text!r}")
    number, exponent, suffix = match.groups()
    return ceil(Decimal(number + (exponent or "")) * (_SUFFIXES[suffix] if suffix else 1))
