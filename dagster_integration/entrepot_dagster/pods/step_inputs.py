"""References of what a step reads, from plan and event log; for the process that launches steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import AssetKey, DagsterInstance
from entrepot_io.reference import Reference

from entrepot_dagster.compat.reexecution import known_past_runs
from entrepot_dagster.compat.steps import StepOutputHandle, partition_of
from entrepot_dagster.values.keys import asset_of_key
from entrepot_dagster.values.reference_log import recorded_asset, recorded_outputs


class RecordedOutputs:
    """References from the event logs of a run and of the runs that it re-executes; each log is read once.

    Args:
        instance: instance with the logs.
        run_id: the run.
        known_state: the run's knowledge about steps that ran before; None: nothing.
    """

    def __init__(self, instance: DagsterInstance, run_id: str, known_state: Any) -> None:
        self._instance = instance
        self._run_id = run_id
        self._past_runs = list(known_past_runs(known_state))
        self._logs: dict[str, dict[tuple[str, ...], Reference]] = {}

    def of_handle(self, handle: StepOutputHandle) -> Reference | None:
        """Return the reference of one output; None: it is not in the store."""
        run_id = self._run_id
        for past in self._past_runs:
            if handle not in past.produced_outputs:
                break
            run_id = past.run_id
        mapping = [handle.mapping_key] if handle.mapping_key is not None else []
        return self._log(run_id).get((handle.step_key, handle.output_name, *mapping))

    def of_step(self, step_key: str) -> Iterator[Reference]:
        """Yield the references of all outputs of a step, from the latest run in which it wrote any."""
        for run_id in (self._run_id, *(past.run_id for past in self._past_runs)):
            references = [reference for key, reference in self._log(run_id).items() if key[0] == step_key]
            if references:
                yield from references
                return

    def _log(self, run_id: str) -> dict[tuple[str, ...], Reference]:
        if run_id not in self._logs:
            self._logs[run_id] = recorded_outputs(self._instance, run_id)
        return self._logs[run_id]


def references_of(
    instance: DagsterInstance, step_context: Any, known_state: Any, reads: Sequence[str] | None
) -> list[Reference]:
    """Return the references of what a step reads.

    Args:
        instance: instance with the event log.
        step_context: the step's context, as available to a step handler.
        known_state: the run's knowledge about steps that ran before; None: nothing.
        reads: overrides the inputs: keys of steps, and of assets as ``asset:raw/orders``.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    recorded = RecordedOutputs(instance, step_context.run_id, known_state)
    partition = partition_of(step_context.dagster_run)
    references_by_id: dict[object, Reference] = {}
    for reference in (
        _input_references(instance, step_context, recorded, partition)
        if reads is None
        else named_references(instance, recorded, reads, partition)
    ):
        references_by_id[reference.id] = reference
    return list(references_by_id.values())


def _input_references(
    instance: DagsterInstance, step_context: Any, recorded: RecordedOutputs, partition: str | None
) -> Iterator[Reference]:
    layer = step_context.job.get_definition().asset_layer
    for step_input in step_context.step.step_inputs:
        handles = step_input.get_step_output_handle_dependencies()
        for handle in handles:
            reference = recorded.of_handle(handle)
            if reference is not None:
                yield reference
        if not handles:  # not made in this run: an asset materialized earlier, or not an object at all
            key = layer.get_asset_key_for_node_input(step_context.node_handle, step_input.name)
            if key is not None:
                yield from _asset_references(instance, key, partition)


def named_references(
    instance: DagsterInstance, recorded: RecordedOutputs, reads: Sequence[str], partition: str | None
) -> Iterator[Reference]:
    """Yield the references of explicitly named inputs.

    Args:
        instance: instance with the event log.
        recorded: outputs recorded by the run.
        reads: keys of steps, and of assets as ``asset:raw/orders`` or ``asset:raw/orders@partition``.
        partition: partition of the run; None: it has none.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    for name in reads:
        path = asset_of_key(name)
        if path is None:
            yield from recorded.of_step(name)
        else:
            yield from _asset_references(instance, AssetKey(path[0]), path[1] or partition)


def _asset_references(instance: DagsterInstance, key: AssetKey, partition: str | None) -> Iterator[Reference]:
    """Yield the asset's partition of this run or, if there is none of that name, its last materialization."""
    reference = None if partition is None else recorded_asset(instance, key, partition)
    reference = reference or recorded_asset(instance, key, None)
    if reference is not None:
        yield reference
