"""Packages whose public names live in modules that are imported when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name, ``__name__``.
        home: for each public name the module that has it: ``"module"`` below the package, or, with a dot in it,
            ``"another.module"`` by its full name; with ``":other"`` behind it if it has another name there.
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = home[name].partition(":")
        value = getattr(import_module(module if "." in module else f"{package}.{module}"), other or name)
        setattr(sys.modules[package], name, value)  # the next time it is found there
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, known
