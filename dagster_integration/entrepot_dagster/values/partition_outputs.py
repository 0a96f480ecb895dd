"""Outputs that cover several partitions, as a backfill in a single run has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot_io.conversions import kind_of

from entrepot_dagster.compat.steps import covers_range
from entrepot_dagster.values.partition_tables import PARTITION_EXPR, TABLES

if TYPE_CHECKING:
    from dagster import OutputContext


def of_only_partition(context: OutputContext, obj: Any) -> Any:
    """Return an output as it is to be written: of a dictionary of the only partition of a range, the value.

    A backfill policy of two partitions in a run makes two runs of three partitions. The step's function is the same in
    both, and returns a dictionary of one in the second.

    Args:
        context: of the output.
        obj: what the step returned.
    """
    if not (context.has_asset_key and context.has_asset_partitions and covers_range(context)):
        return obj
    partitions = context.asset_partition_keys
    if len(partitions) == 1 and isinstance(obj, Mapping) and set(obj) == set(partitions):
        return obj[partitions[0]]
    return obj


def check_partitions(asset: str, partitions: Sequence[str], obj: Any, *, has_policy: bool) -> None:
    """Check that a step has returned a dictionary with each of its partitions.

    Args:
        asset: its key, as text.
        partitions: their keys.
        obj: what the step returned.
        has_policy: whether a policy is in effect.

    Raises:
        InvalidArgument: it has not, or a policy saves checkpoints of single partitions.
    """
    subject = f"this output of {asset} covers {len(partitions)} partitions"
    if not isinstance(obj, Mapping) or set(obj) != set(partitions):
        returned = ", ".join(map(str, obj)) if isinstance(obj, Mapping) else type(obj).__name__
        by_column = (
            f"name the column that says whose each row is in the output's metadata {PARTITION_EXPR}; or "
            if kind_of(obj) in TABLES
            else ""
        )
        raise InvalidArgument(
            f"{subject}: return a dictionary with the value of each of {', '.join(sorted(partitions))}, not "
            f"{returned}; or {by_column}run the backfill with one run per partition"
        )
    if has_policy:
        raise InvalidArgument(
            f"{subject}, and a policy saves checkpoints of single ones: run the backfill with one run per partition, "
            "or set policy=off"
        )
