"""Outputs with several partitions, in a durable tier: one after the other, each as if its run had only that one.

Dagster's IO managers for files refuse several partitions at once, and those for databases want one table of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import OutputContext, PartitionKeyRange, TimeWindowPartitionsDefinition

if TYPE_CHECKING:
    from dagster import IOManager, TimeWindow


class PartitionContext(OutputContext):
    """The context of an output, for one of its partitions. What is added to it stays with it."""

    def __init__(self, context: OutputContext, partition: str) -> None:
        """As the context, but for its partitions.

        Args:
            context: of the output.
            partition: key of the partition.
        """
        vars(self).update(vars(context))
        self._partition = partition

    @property
    def asset_partition_key(self) -> str:
        """Key of the partition."""
        return self._partition

    @property
    def asset_partition_keys(self) -> Sequence[str]:
        """Key of the partition, alone."""
        return [self._partition]

    @property
    def asset_partition_key_range(self) -> PartitionKeyRange:
        """The range of this partition alone."""
        return PartitionKeyRange(self._partition, self._partition)

    @property
    def asset_partitions_time_window(self) -> TimeWindow:
        """The partition's time window."""
        definition = self.asset_partitions_def
        if isinstance(definition, TimeWindowPartitionsDefinition):
            return definition.time_window_for_partition_key(self._partition)
        return super().asset_partitions_time_window


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
