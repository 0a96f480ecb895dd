"""Transcoded names: ``x@pandas`` and ``x@polars`` are one value, which each reader gets in the form it names.

Kedro orders nodes by the part before the ``@``; its own datasets read one file in two ways. Here the value is stored
once, as it was saved, and converted on load. An unknown form returns the value as it was saved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

SEPARATOR = "@"


def plain_name(name: str) -> str:
    """Return the name of the value, without the form."""
    return name.partition(SEPARATOR)[0]


def form_of(name: str) -> str:
    """Return the form that a name asks for; empty: none.

    >>> plain_name("cars@polars"), form_of("cars@polars"), form_of("cars")
    ('cars', 'polars', '')
    """
    return name.partition(SEPARATOR)[2]


def convert_to_form(value: Any, form: str) -> Any:
    """Convert a value to a form.

    Args:
        value: a pandas or Polars frame, an Arrow table, or a NumPy array; other values are returned unchanged.
        form: ``pandas``, ``polars``, ``arrow`` (or ``pyarrow``), ``numpy``; others change nothing.

    Raises:
        ImportError: the form's package is not installed.
    """
    convert = _CONVERTERS.get(form)
    return value if convert is None else convert(value, _library_of(value))


def _library_of(value: Any) -> str:
    """Return which library the value belongs to; a library that was not imported is not considered."""
    for name, module, classes in (
        ("pandas", "pandas", ("DataFrame", "Series")),
        ("polars", "polars", ("DataFrame", "LazyFrame", "Series")),
        ("arrow", "pyarrow", ("Table", "RecordBatch")),
        ("numpy", "numpy", ("ndarray",)),
    ):
        imported_module = sys.modules.get(module)
        if imported_module is not None and isinstance(
            value, tuple(getattr(imported_module, class_name) for class_name in classes)
        ):
            return name
    return ""


def _to_pandas(value: Any, kind: str) -> Any:
    if kind in ("polars", "arrow"):
        return _collected(value).to_pandas()
    if kind == "numpy":
        import pandas as pd

        return pd.DataFrame(value)
    return value


def _to_polars(value: Any, kind: str) -> Any:
    if kind in ("pandas", "arrow", "numpy"):
        import polars as pl

        return {"pandas": pl.from_pandas, "arrow": pl.from_arrow, "numpy": pl.from_numpy}[kind](value)  # type: ignore[operator]
    return value


def _to_arrow(value: Any, kind: str) -> Any:
    if kind == "polars":
        frame = _collected(value)
        return frame.to_arrow()
    if kind == "pandas":
        import pyarrow as pa

        return pa.Table.from_pandas(value) if value.ndim == 2 else pa.Array.from_pandas(value)
    return value


def _to_numpy(value: Any, kind: str) -> Any:
    if kind in ("pandas", "polars"):
        return _collected(value).to_numpy()
    if kind == "arrow":
        return value.to_pandas().to_numpy()
    return value


def _collected(value: Any) -> Any:
    return value.collect() if hasattr(value, "collect") else value


_CONVERTERS: dict[str, Callable[[Any, str], Any]] = {
    "pandas": _to_pandas,
    "polars": _to_polars,
    "arrow": _to_arrow,
    "pyarrow": _to_arrow,
    "numpy": _to_numpy,
}
