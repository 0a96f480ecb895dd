"""Lineage from Dagster's event log, used if the lineage in the store was lost with it.

Each output's metadata has its reference, and what its step had read until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, AssetRecordsFilter, DagsterEventType, DagsterInstance, JsonMetadataValue
from entrepot_io.policy import ObjectRef, Subject, Task
from entrepot_io.policy.lineage import distinct
from entrepot_io.reference import Reference

from entrepot_dagster.places import asset_of_key, run_of_session
from entrepot_dagster.reasons import ref_in, ref_out
from entrepot_dagster.records import reference_of

INPUTS = "entrepot/inputs"
MAX_INPUTS = 256


def inputs_entry(inputs: Sequence[ObjectRef]) -> dict[str, JsonMetadataValue]:
    """Return what a step had read, as metadata of its output; empty if it is too much for metadata."""
    kept, complete = distinct(inputs)
    if not complete or len(kept) > MAX_INPUTS:
        return {}
    return {INPUTS: JsonMetadataValue([ref_out(ref) for ref in kept])}


@dataclass(frozen=True)
class _Written:
    task: Task
    inputs: tuple[ObjectRef, ...] | None
    reference: Reference


class RunLog:
    """A :class:`~entrepot_io.policy.planning.Graph` from the event log of an instance.

    Attributes:
        instance: the instance; None: nothing is known.
    """

    def __init__(self) -> None:
        self.instance: DagsterInstance | None = None

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """Return the step that wrote an object."""
        found = self._find(ref)
        return None if found is None else found.task

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """Return what the step had read before it wrote an output."""
        found = self._find(output)
        return None if found is None or found.task != task else found.inputs

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules can match on for an object; its tags are not in the log."""
        found = self._find(ref)
        if found is None:
            return None
        path = asset_of_key(ref.key)
        asset = "" if path is None else "/".join(path[0])
        known = found.reference
        return Subject(found.task, ref.key, asset, type=known.type, nbytes=known.nbytes)

    def _find(self, ref: ObjectRef) -> _Written | None:
        if self.instance is None:
            return None
        path = asset_of_key(ref.key)
        if path is not None:
            return _of_asset(self.instance, ref, *path)
        run_id = run_of_session(ref.session)
        return None if run_id is None else _of_output(self.instance, ref, run_id)


def _of_output(instance: DagsterInstance, ref: ObjectRef, run_id: str) -> _Written | None:
    run = instance.get_run_by_id(run_id)
    if run is None:
        return None
    for entry in reversed(instance.all_logs(run_id, of_type=DagsterEventType.HANDLED_OUTPUT)):
        metadata = getattr(entry.get_dagster_event().event_specific_data, "metadata", {})
        reference = reference_of(metadata)
        if entry.step_key is not None and reference is not None and reference.id == ref.id:
            return _Written(Task("dagster", run.job_name, run_id, entry.step_key), _inputs(metadata), reference)
    return None


def _of_asset(instance: DagsterInstance, ref: ObjectRef, path: Sequence[str], partition: str | None) -> _Written | None:
    wanted = AssetRecordsFilter(AssetKey(path), asset_partitions=None if partition is None else [partition])
    for record in instance.fetch_materializations(wanted, limit=1).records:
        entry, event = record.event_log_entry, record.asset_materialization
        run = instance.get_run_by_id(record.run_id)
        reference = None if event is None else reference_of(event.metadata)
        if run is None or event is None or reference is None or entry.step_key is None or reference.id != ref.id:
            return None
        task = Task("dagster", run.job_name, record.run_id, entry.step_key)
        return _Written(task, _inputs(event.metadata), reference)
    return None


def _inputs(metadata: Mapping[str, Any]) -> tuple[ObjectRef, ...] | None:
    entry = metadata.get(INPUTS)
    return tuple(map(ref_in, entry.data)) if isinstance(entry, JsonMetadataValue) else None  # type: ignore[arg-type]
