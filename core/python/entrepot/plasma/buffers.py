"""What holds an object's bytes in Python: a ``pyarrow.Buffer``, or a ``memoryview`` where pyarrow is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    PlasmaBuffer: Any = memoryview
    as_buffer: Callable[[Any], Any] = memoryview
else:
    try:
        from pyarrow import Buffer as PlasmaBuffer
        from pyarrow import py_buffer as as_buffer
    except ImportError:
        PlasmaBuffer = as_buffer = memoryview


def checked_bytes(what: str, value: Any) -> bytes:
    """Return a copy of bytes that were given as ``what``.

    Raises:
        TypeError: they are not bytes.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes, but got {value!r} of type {type(value).__name__}")
