"""Values that say which write they come from: each is made from a number, and any byte of it can be checked."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

_HEAD = struct.Struct("<QQ")  # number of the write, and size
HEAD_BYTES = _HEAD.size


class WrongBytes(Exception):
    """A value is none that was ever written."""


def content(number: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """The value of a write.

    Args:
        number: of the write.
        nbytes: of the value, at least ``HEAD_BYTES``.
    """
    value = np.empty(nbytes, dtype=np.uint8)
    value[:HEAD_BYTES] = np.frombuffer(_HEAD.pack(number, nbytes), dtype=np.uint8)
    pattern = np.frombuffer(hashlib.sha256(str(number).encode()).digest(), dtype=np.uint8)
    value[HEAD_BYTES:] = np.resize(pattern, nbytes - HEAD_BYTES)
    return value


def number_of(value: Any) -> int:
    """The write that a value comes from.

    Raises:
        WrongBytes: it differs from what that write has written.
    """
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.size < HEAD_BYTES:
        raise WrongBytes(f"a value of another type was read: {str(value)[:100]}")
    number, nbytes = _HEAD.unpack(value[:HEAD_BYTES].tobytes())
    if nbytes != value.size:
        raise WrongBytes(f"a value of {value.size} bytes was read that says that it has {nbytes}")
    wrong = np.flatnonzero(value != content(number, nbytes))
    if wrong.size:
        raise WrongBytes(f"write {number}: {wrong.size} of {nbytes} bytes are others, the first at {wrong[0]}")
    return int(number)
