"""References recorded in Dagster's event log when values were written.

Dagster asks for values by its own names, so only the log can tell that an asset was last materialized on another host,
while this host's store may still have an older value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from dagster import AssetKey, AssetRecordsFilter, DagsterEventType, DagsterInstance, JsonMetadataValue
from entrepot_io.keys import dagster_output_key
from entrepot_io.reference import Reference

from entrepot_dagster.values.output_facts import REFERENCE, REFERENCES


def recorded_asset(instance: DagsterInstance, key: AssetKey, partition: str | None) -> Reference | None:
    """Return the reference of an asset's last materialization; None if it has none (another IO manager wrote the asset,
    or it was reported from outside). For whoever reads the asset, ``last_write`` tells these apart.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    records = instance.fetch_materializations(records_of(key, partition), limit=1).records
    materialization = records[0].asset_materialization if records else None
    return None if materialization is None else reference_of(materialization.metadata, partition)


def recorded_output(instance: DagsterInstance, run_id: str, key: str) -> Reference | None:
    """Return the reference of an op's output from the log of its run; called only when the value is missing.

    Args:
        instance: instance with the event log.
        run_id: the run that wrote it.
        key: key of the output.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    for entry in reversed(instance.all_logs(run_id, of_type=DagsterEventType.HANDLED_OUTPUT)):
        reference = reference_of(getattr(entry.get_dagster_event().event_specific_data, "metadata", {}))
        if reference is not None and reference.key == key:
            return reference
    return None


def recorded_outputs(instance: DagsterInstance, run_id: str) -> dict[tuple[str, ...], Reference]:
    """Return the references of all outputs of a run, by step key, output name and, for dynamic outputs, mapping key.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    references: dict[tuple[str, ...], Reference] = {}
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.HANDLED_OUTPUT):
        data = entry.get_dagster_event().event_specific_data
        reference = reference_of(getattr(data, "metadata", {}))
        if reference is None or entry.step_key is None:
            continue
        name: str = getattr(data, "output_name", "")
        prefix = dagster_output_key([entry.step_key, name])
        suffix = (reference.key or "").removeprefix(prefix)
        references[(entry.step_key, name, *([unquote(suffix[1:])] if suffix.startswith("/") else []))] = reference
    return references


def records_of(key: AssetKey, partition: str | None) -> AssetRecordsFilter:
    """Return the filter for the events of an asset, or of one of its partitions.

    Args:
        key: of the asset.
        partition: of it; None: any, and events of no partition.
    """
    return AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])


def reference_of(metadata: Mapping[str, Any], partition: str | None = None) -> Reference | None:
    """Return the reference in an output's metadata; None if another IO manager wrote it.

    Args:
        metadata: of the output, or of its materialization.
        partition: which one is meant, where the metadata are those of several.

    Raises:
        InvalidReference: it is damaged.
    """
    several = metadata.get(REFERENCES)
    if partition is not None and isinstance(several, JsonMetadataValue) and isinstance(several.data, Mapping):
        of_partition = several.data.get(partition)
        return None if of_partition is None else Reference.parse(of_partition)
    entry = metadata.get(REFERENCE)
    return Reference.parse(entry.data) if isinstance(entry, JsonMetadataValue) else None
