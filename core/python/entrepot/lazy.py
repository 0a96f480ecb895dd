"""Lazy imports: packages whose public names live in modules that are imported on first use of a name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: the package's ``__name__``.
        home: maps each public name to its module: ``"module"``, relative to the package, or, if it contains a dot,
            ``"another.module"``, absolute. A suffix ``":other"`` gives the name within that module if it differs.
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = home[name].partition(":")
        value = getattr(import_module(module if "." in module else f"{package}.{module}"), other or name)
        setattr(sys.modules[package], name, value)  # later lookups find it directly
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, known
