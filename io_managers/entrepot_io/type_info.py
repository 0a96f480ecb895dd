"""Human-readable type and shape of a value. Imports no data library."""

from __future__ import annotations

import sys
from typing import Any

# Only libraries whose `shape` is a cheap tuple of numbers; elsewhere, reading it may start a computation.
_LIBRARIES_WITH_SHAPE = frozenset(
    {"numpy", "pandas", "polars", "pyarrow", "scipy", "torch", "cupy", "xarray", "jax", "jaxlib"}
)


def type_name(value: Any) -> str:
    """The public name of a value's type, such as ``"pandas.DataFrame"`` or ``"dict"``."""
    cls = type(value)
    module, name = cls.__module__, cls.__qualname__
    if module == "builtins":
        return name
    root = module.partition(".")[0]
    # pandas.core.frame.DataFrame is commonly known as pandas.DataFrame.
    public = getattr(sys.modules.get(root), name, None) is cls
    return f"{root}.{name}" if public else f"{module}.{name}"


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an array or a table; ``None`` if it has none.

    Args:
        value: anything; ``shape`` is read only on values of known data libraries.
    """
    if type(value).__module__.partition(".")[0] not in _LIBRARIES_WITH_SHAPE:
        return None
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in shape):
        return tuple(int(n) for n in shape)
    if shape is None and hasattr(type(value), "__len__"):
        return (len(value),)
    return None
