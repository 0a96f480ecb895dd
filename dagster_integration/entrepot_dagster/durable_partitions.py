"""Outputs with several partitions, in a durable tier: one after the other, each as if its run had only that one.

Dagster's IO managers for files refuse several partitions at once, and those for databases want one table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entrepot_dagster.compat.partitions import PartitionContext

if TYPE_CHECKING:
    from dagster import IOManager, OutputContext


def write_partitions(manager: IOManager, context: OutputContext, obj: Any) -> None:
    """Write an output to an IO manager; a dictionary of several partitions one by one, without their metadata.

    Args:
        manager: the IO manager.
        context: of the output.
        obj: the output.

    Raises:
        what the IO manager raises; the partitions before are written then.
    """
    partitions = context.asset_partition_keys if context.has_asset_key and context.has_asset_partitions else []
    if len(partitions) < 2 or not isinstance(obj, Mapping) or set(obj) != set(partitions):
        manager.handle_output(context, obj)
        return
    for partition in partitions:
        manager.handle_output(PartitionContext(context, partition), obj[partition])
