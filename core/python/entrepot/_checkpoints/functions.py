"""The functions of the package that implements checkpoints, found by entry point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from entrepot.errors import InvalidArgument

ENTRY_POINT_GROUP = "entrepot.checkpoints"


@cache
def checkpoint_function(name: str) -> Callable[..., Any]:
    """Return the function that an installed package registered under this name."""
    from importlib import metadata  # takes milliseconds, which a process that saves nothing need not spend

    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return cast("Callable[..., Any]", entry.load())
    raise InvalidArgument(
        f"no installed package provides {name!r} in the entry-point group {ENTRY_POINT_GROUP!r}: reinstall entrepot"
    )
