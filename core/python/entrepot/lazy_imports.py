"""Lazy imports: packages whose public names live in modules that are imported on first use of a name.

Also the deprecated aliases of names and modules that have moved.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, str] = MappingProxyType({})


def lazy_names(
    package: str, module_by_name: Mapping[str, str], deprecated: Mapping[str, str] = _NONE
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: the package's ``__name__``.
        module_by_name: maps each public name to its module: ``"module"``, relative to the package, or, if it contains a
            dot, ``"another.module"``, absolute. A suffix ``":other"`` gives the name within that module if it differs.
        deprecated: maps each former name to the public name that replaces it; each use warns.
    """

    def get(name: str) -> Any:
        if name in deprecated:
            _warn(f"{package}.{name}", f"{package}.{deprecated[name]}")
            return getattr(sys.modules[package], deprecated[name])
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = module_by_name[name].partition(":")
        value = getattr(import_module(module if "." in module else f"{package}.{module}"), attribute or name)
        setattr(sys.modules[package], name, value)  # later lookups find it directly
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_by_name})

    return get, list_names


def deprecated_module(former: str, current: str, renamed: Mapping[str, str] = _NONE) -> Callable[[str], Any]:
    """Return ``__getattr__`` for the module ``former``, whose content is now in ``current``; each use of a name warns.

    Args:
        former: the ``__name__`` of the module that stays as an alias.
        current: the module that has its names.
        renamed: former names whose current names differ.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system and by introspection, never meant for `current`
            raise AttributeError(f"module {former!r} has no attribute {name!r}")
        value = getattr(import_module(current), renamed.get(name, name))
        _warn(f"{former}.{name}", f"{current}.{renamed.get(name, name)}")
        return value

    return get


def deprecated_names(module: str, current_by_former: Mapping[str, str]) -> Callable[[str], Any]:
    """Return ``__getattr__`` for ``module``, some of whose names have changed; each use of a former name warns."""

    def get(name: str) -> Any:
        if name not in current_by_former:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", f"{module}.{current_by_former[name]}")
        return getattr(sys.modules[module], current_by_former[name])

    return get


def _warn(former: str, current: str) -> None:
    warnings.warn(f"{former} is deprecated: use {current}", DeprecationWarning, stacklevel=3)
