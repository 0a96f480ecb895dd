"""The context of one partition of an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagster import OutputContext, PartitionKeyRange, TimeWindowPartitionsDefinition

if TYPE_CHECKING:
    from dagster import TimeWindow


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
