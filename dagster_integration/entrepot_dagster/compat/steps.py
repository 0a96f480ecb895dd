"""The step behind an IO manager's context, and the outputs that a step's inputs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from dagster import (
    AssetExecutionContext,
    DagsterRun,
    InputContext,
    MetadataValue,
    OpExecutionContext,
    OutputContext,
)
from dagster._core.execution.plan.inputs import UnresolvedCollectStepInput, UnresolvedMappedStepInput
from dagster._core.execution.plan.outputs import StepOutputHandle as StepOutputHandle
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_START_TAG, PARTITION_NAME_TAG

if TYPE_CHECKING:
    from dagster import StepExecutionContext
    from dagster_shared.error import SerializableErrorInfo as SerializableErrorInfo

C = TypeVar("C", InputContext, OutputContext)


def with_resource_config(context: C, config: Mapping[str, object]) -> C:
    """Return a copy of a context with the configuration of another IO manager.

    Args:
        context: of a value.
        config: that IO manager's.
    """
    own_context = copy(context)
    own_context._resource_config = config
    return own_context


def with_missing_partitions(context: InputContext) -> InputContext:
    """Return a copy of a context whose input leaves out partitions that were never written, as Dagster's metadata for
    it says.

    Args:
        context: of an input.
    """
    own_context = copy(context)
    own_context._definition_metadata = {**(context.definition_metadata or {}), "allow_missing_partitions": True}
    return own_context


def has_step(context: InputContext | OutputContext) -> bool:
    """Return whether a context belongs to a step; if not, its log and its step context raise when accessed.

    Contexts built by tests, or for loading a value outside of any run, have no step.
    """
    return getattr(context, "_step_context", None) is not None


def executing_step(context: InputContext | OutputContext) -> StepExecutionContext | None:
    """Return the step that executes and reads or writes a value; None: there is none.

    When a finished run's result is asked for an output, there is a step, but it does not execute and has no known
    state.
    """
    step: StepExecutionContext | None = getattr(context, "_step_context", None)
    return None if step is None or step._known_state is None else step


def has_retries(context: InputContext) -> bool:
    """Return whether Dagster would retry the step that reads an input, by the retry policy of its op or its job.

    Args:
        context: of an input.
    """
    step = executing_step(context)
    return step is not None and step.op_retry_policy is not None


def add_loaded_metadata(context: InputContext, metadata: Mapping[str, MetadataValue[Any]]) -> None:
    """Add metadata to the event by which Dagster records that an input was loaded, and to nothing else.

    ``InputContext.add_input_metadata`` also observes the asset, each time that it is read, and is an error for an input
    with several partitions.

    Args:
        context: of an input.
        metadata: to be added.
    """
    context._user_generated_metadata = {**context._user_generated_metadata, **metadata}


def input_partitions(context: AssetExecutionContext | OpExecutionContext, name: str) -> Sequence[str] | None:
    """Return the partitions of the upstream asset that an input of an executing step reads; None: it has none.

    Args:
        context: of the step.
        name: of the input.
    """
    if not context.get_step_execution_context().has_asset_partitions_for_input(name):
        return None
    return context.asset_partition_keys_for_input(name)


def step_key(context: AssetExecutionContext | OpExecutionContext) -> str:
    """Return the key of an executing step."""
    return context.get_step_execution_context().step.key


def upstream_handles(step_input: Any) -> Sequence[StepOutputHandle]:
    """Return the outputs that a step's input reads; without mapping keys if the input is unresolved."""
    if isinstance(step_input, (UnresolvedMappedStepInput, UnresolvedCollectStepInput)):
        return step_input.get_step_output_handle_deps_with_placeholders()
    handles: Sequence[StepOutputHandle] = step_input.get_step_output_handle_dependencies()
    return handles


def partition_of(run: DagsterRun) -> str | None:
    """Return the partition of a run; None: it has none."""
    return run.tags.get(PARTITION_NAME_TAG)


def add_partition_metadata(context: OutputContext, metadata: Mapping[str, Mapping[str, MetadataValue[Any]]]) -> None:
    """Add metadata to the materializations of single partitions of an output; what the step itself says of them stays.

    Args:
        context: of an asset's output, in a step.
        metadata: by partition.
    """
    step, key = context.step_context, context.asset_key
    of_all = {**(context.output_metadata or {}), **(step.get_asset_metadata(asset_key=key) or {})}
    for partition, entries in metadata.items():
        own = of_all.keys() | (step.get_asset_metadata(asset_key=key, partition_key=partition) or {}).keys()
        added = {name: entry for name, entry in entries.items() if name not in own}
        step.add_asset_metadata(added, asset_key=key, partition_key=partition)


def covers_range(context: InputContext | OutputContext | AssetExecutionContext | OpExecutionContext) -> bool:
    """Return whether a run covers a range of partitions, be it of a single one.

    A backfill launches such runs of assets whose backfill policy allows several partitions in a run.

    Args:
        context: of a value, or of a step.
    """
    if isinstance(context, (InputContext, OutputContext)):
        return has_step(context) and ASSET_PARTITION_RANGE_START_TAG in context.step_context.run_tags
    return ASSET_PARTITION_RANGE_START_TAG in context.run.tags
