"""Lineage from Dagster's event log, used if the lineage in the store was lost with it.

Each output's metadata has its reference, and what its step had read until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, DagsterEventType, DagsterInstance, JsonMetadataValue
from entrepot_io.reference import Reference
from entrepot_policy import ObjectRef, Subject, Task
from entrepot_policy.state.lineage import distinct_inputs

from entrepot_dagster.policy.failures import decode_ref, encode_ref
from entrepot_dagster.values.keys import asset_of_key, run_of_session
from entrepot_dagster.values.reference_log import records_of, reference_of

INPUTS = "entrepot/inputs"
MAX_INPUTS = 256


def inputs_metadata(inputs: Sequence[ObjectRef]) -> dict[str, JsonMetadataValue]:
    """Return what a step had read, as metadata of its output; empty if it is too much for metadata."""
    refs, complete = distinct_inputs(inputs)
    if not complete or len(refs) > MAX_INPUTS:
        return {}
    return {INPUTS: JsonMetadataValue([encode_ref(ref) for ref in refs])}


@dataclass(frozen=True)
class _OutputRecord:
    task: Task
    inputs: tuple[ObjectRef, ...] | None
    reference: Reference


class RunLog:
    """A :class:`~entrepot_policy.recovery.planning.Graph` from the event log of an instance.

    Attributes:
        instance: the instance; None: nothing is known.
    """

    def __init__(self) -> None:
        self.instance: DagsterInstance | None = None

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """Return the step that wrote an object."""
        record = self._find_record(ref)
        return None if record is None else record.task

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """Return what the step had read before it wrote an output."""
        record = self._find_record(output)
        return None if record is None or record.task != task else record.inputs

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules can match on for an object; its tags are not in the log."""
        record = self._find_record(ref)
        if record is None:
            return None
        path = asset_of_key(ref.key)
        asset = "" if path is None else "/".join(path[0])
        reference = record.reference
        return Subject(record.task, ref.key, asset, type=reference.type, nbytes=reference.nbytes)

    def _find_record(self, ref: ObjectRef) -> _OutputRecord | None:
        if self.instance is None:
            return None
        path = asset_of_key(ref.key)
        if path is not None:
            return _find_asset_record(self.instance, ref, *path)
        run_id = run_of_session(ref.session)
        return None if run_id is None else _find_output_record(self.instance, ref, run_id)


def _find_output_record(instance: DagsterInstance, ref: ObjectRef, run_id: str) -> _OutputRecord | None:
    run = instance.get_run_by_id(run_id)
    if run is None:
        return None
    for entry in reversed(instance.all_logs(run_id, of_type=DagsterEventType.HANDLED_OUTPUT)):
        metadata = getattr(entry.get_dagster_event().event_specific_data, "metadata", {})
        reference = reference_of(metadata)
        if entry.step_key is not None and reference is not None and reference.id == ref.id:
            return _OutputRecord(
                Task("dagster", run.job_name, run_id, entry.step_key), _parse_inputs(metadata), reference
            )
    return None


def _find_asset_record(
    instance: DagsterInstance, ref: ObjectRef, path: Sequence[str], partition: str | None
) -> _OutputRecord | None:
    for record in instance.fetch_materializations(records_of(AssetKey(path), partition), limit=1).records:
        entry, event = record.event_log_entry, record.asset_materialization
        run = instance.get_run_by_id(record.run_id)
        reference = None if event is None else reference_of(event.metadata)
        if run is None or event is None or reference is None or entry.step_key is None or reference.id != ref.id:
            return None
        task = Task("dagster", run.job_name, record.run_id, entry.step_key)
        return _OutputRecord(task, _parse_inputs(event.metadata), reference)
    return None


def _parse_inputs(metadata: Mapping[str, Any]) -> tuple[ObjectRef, ...] | None:
    entry = metadata.get(INPUTS)
    return tuple(map(decode_ref, entry.data)) if isinstance(entry, JsonMetadataValue) else None  # type: ignore[arg-type]
