"""Outputs that are Polars' lazy frames or Arrow's readers: their rows are stored, as by Dagster's library for Polars.

A stored plan would read its own inputs again for each reader; by then they may have changed, or no longer exist. A
reader can be read once, and only in its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot_io.conversions import READ_LATER, computed
from entrepot_io.type_info import type_name

if TYPE_CHECKING:
    from dagster import OutputContext

_LAZY_FRAME = "polars.LazyFrame"


def collected(context: OutputContext, obj: Any) -> Any:
    """Return an output with the rows in the place of a lazy frame or reader, or of those of several partitions.

    Args:
        context: of the output.
        obj: what the step returned.
    """
    return _replaced(context, obj, computed)


def collected_once(context: OutputContext, obj: Any) -> Any:
    """Return the same output for several writers: its lazy frames have their result in memory, readers are tables.

    Args:
        context: of the output.
        obj: what the step returned.
    """

    def in_memory(value: Any) -> Any:
        rows = computed(value)
        return rows.lazy() if type_name(value) == _LAZY_FRAME else rows

    return _replaced(context, obj, in_memory)


def _replaced(context: OutputContext, obj: Any, replace: Callable[[Any], Any]) -> Any:
    if _is_lazy(obj):
        return replace(obj)
    if isinstance(obj, Mapping) and context.has_asset_key and context.has_asset_partitions:
        return {key: replace(value) if _is_lazy(value) else value for key, value in obj.items()}
    return obj


def _is_lazy(value: Any) -> bool:
    return type_name(value) in READ_LATER
