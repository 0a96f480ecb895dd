"""Dagster Pipes, in the step: what its external process reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot_io.external_task import ExternalTask, OutputSlot
from entrepot_io.keys import join
from entrepot_io.reference import Reference
from entrepot_io.sessions import run_session

from entrepot_dagster.compat.steps import covers_range, input_partitions, step_key
from entrepot_dagster.pipes_values import EXTRA
from entrepot_dagster.values.keys import key_of_asset
from entrepot_dagster.values.last_writes import last_write
from entrepot_dagster.values.typed_inputs import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster import AssetExecutionContext, AssetKey, OpExecutionContext

    StepContext = AssetExecutionContext | OpExecutionContext


def external_task(
    context: StepContext, *, address: str | None, scope: str, explicit_scope: bool, session_ttl: float
) -> ExternalTask:
    """Describe what an external process of a step reads and writes.

    Args:
        context: of the step.
        address: of the store; None: the one that the process finds.
        scope: the deployment.
        explicit_scope: whether the user set it.
        session_ttl: seconds that a session lives after its last use.

    Raises:
        InvalidReference: the event log holds a damaged one.
    """
    if not context.has_assets_def:
        session = run_session("dagster", context.run_id)
        slots = {name: OutputSlot(session, _key_of_pipe(context, name)) for name in context.op_def.output_dict}
        return ExternalTask(scope, session_ttl, {}, slots, address)
    inputs: dict[str, Reference | Mapping[str, Reference]] = {}
    for name, asset_key in context.assets_def.keys_by_input_name.items():
        references = _references(context, name, asset_key)
        if references:
            inputs[asset_key.to_user_string()] = references
    outputs: dict[str, OutputSlot] = {}
    for asset_key in sorted(context.selected_asset_keys):
        keys = {
            partition: key_of_asset(context.instance, asset_key.path, partition, explicit_scope=explicit_scope)
            for partition in _output_partitions(context)
        }
        session = next(iter(keys.values())).session
        if len(keys) == 1 and not covers_range(context):
            slot = OutputSlot(session, next(iter(keys.values())).key)
        else:
            slot = OutputSlot(session, partitions={str(partition): each.key for partition, each in keys.items()})
        outputs[asset_key.to_user_string()] = slot
    return ExternalTask(scope, session_ttl, inputs, outputs, address)


def op_output(messages: Sequence[Any], name: str) -> Reference:
    """Return the reference of an op's output that its external process has put.

    Args:
        messages: custom messages of the process.
        name: of the output.

    Raises:
        ObjectNotFound: it has put none.
        InvalidReference: the message is damaged.
    """
    for message in reversed(messages):
        entry = message.get(EXTRA) if isinstance(message, Mapping) else None
        if isinstance(entry, Mapping) and entry.get("output") == name:
            return Reference.parse(entry.get("reference"))
    raise ObjectNotFound(f"the external process has put no output {name!r}: it does so by PipesValues.put")


def _references(context: StepContext, name: str, asset_key: AssetKey) -> Reference | dict[str, Reference] | None:
    """The references of an upstream asset, as they would be read now; None: it is not in the store.

    Raises:
        ObjectLost: some of its partitions are in the store, and others were written by another IO manager.
        InvalidReference: the event log holds a damaged one.
    """
    partitions = input_partitions(context, name)
    if partitions is None:
        write = last_write(context.instance, asset_key, None)
        return None if write is None else write.reference
    ordered = in_order(partitions, context.asset_partitions_def_for_input(name), context.instance)
    writes = {
        partition: write
        for partition in ordered
        if (write := last_write(context.instance, asset_key, partition)) is not None
    }
    by_partition = {partition: write.reference for partition, write in writes.items() if write.reference is not None}
    elsewhere = [partition for partition in writes if partition not in by_partition]
    if by_partition and elsewhere:  # of which it would silently have only some
        raise writes[elsewhere[0]].not_in_store(asset_key, elsewhere[0])
    if len(ordered) == 1 and not covers_range(context):
        return next(iter(by_partition.values()), None)
    return by_partition


def _output_partitions(context: StepContext) -> Sequence[str | None]:
    if not context.has_partition_key and not context.has_partition_key_range:
        return [None]
    if context.assets_def.partitions_def is None:
        return [None]
    partitions = list(context.partition_keys)
    if not partitions:
        raise InvalidArgument(f"step {context.op.name} covers no partition, so its process has nothing to write")
    return partitions


def _key_of_pipe(context: StepContext, name: str) -> str:
    """Key of an op's output while it is the external process's: the IO manager writes it under one of its own."""
    return "pipes:" + join([step_key(context), name])
