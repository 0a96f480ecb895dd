"""What stands for the value that a dataset does not have, as ``None`` may be a value."""

from __future__ import annotations


class _NoValue:
    """The type of :data:`NO_VALUE`, which unpickles to the same instance in every process."""

    def __reduce__(self) -> str:
        return "NO_VALUE"


NO_VALUE = _NoValue()
