"""Outputs that are Polars' lazy frames, query plans: their results are stored, as by Dagster's library for Polars.

A stored plan would read its own inputs again for each reader; by then they may have changed, or no longer exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot_io.type_info import type_name

if TYPE_CHECKING:
    from dagster import OutputContext


def collected(context: OutputContext, obj: Any) -> Any:
    """Return an output with the result in the place of a lazy frame, or of those of several partitions.

    Args:
        context: of the output.
        obj: what the step returned.
    """
    return _replaced(context, obj, lambda frame: frame.collect())


def collected_once(context: OutputContext, obj: Any) -> Any:
    """Return the same output, whose lazy frames have their result in memory, for several writers that collect it.

    Args:
        context: of the output.
        obj: what the step returned.
    """
    return _replaced(context, obj, lambda frame: frame.collect().lazy())


def _replaced(context: OutputContext, obj: Any, replace: Callable[[Any], Any]) -> Any:
    if _is_lazy(obj):
        return replace(obj)
    if isinstance(obj, Mapping) and context.has_asset_key and context.has_asset_partitions:
        return {key: replace(value) if _is_lazy(value) else value for key, value in obj.items()}
    return obj


def _is_lazy(value: Any) -> bool:
    return type_name(value) == "polars.LazyFrame"
