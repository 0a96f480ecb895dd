"""Text of NumPy arrays of Python objects, written as Arrow has it, for codecs.

Needs neither NumPy nor Arrow: both are given as objects with the buffer protocol.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from entrepot import _core

MISSING = ("none", "nan", "na")


class TextSize(NamedTuple):
    """What text takes as Arrow has it.

    Attributes:
        missing: what stands for missing values: ``"none"`` (also if none is missing), ``"nan"`` or ``"na"``.
        nulls: how many there are.
        nbytes: of the text as UTF-8; None: it has a surrogate, which UTF-8 has not.
    """

    missing: str
    nulls: int
    nbytes: int | None


def measure(values: Any, na: object) -> TextSize | None:
    """Return the size of an array's text; None: it has other values, or missing ones of several kinds.

    Args:
        values: a one-dimensional array of objects.
        na: pandas' ``NA``.
    """
    measured = _core.measure_text(values, na)
    if measured is None:
        return None
    missing, nulls, nbytes = measured
    return TextSize(MISSING[missing], nulls, None if nbytes < 0 else nbytes)


def write(values: Any, offsets: Any, data: Any, validity: Any) -> None:
    """Write an array's text.

    Args:
        values: as measured.
        offsets: a writable buffer for 64-bit integers, one more than values.
        data: a writable buffer of as many bytes as were measured.
        validity: a writable buffer for a bit for each value; None: no value is missing.

    Raises:
        InvalidArgument: another thread has changed the array since it was measured.
    """
    _core.write_text(values, offsets, data, validity)
