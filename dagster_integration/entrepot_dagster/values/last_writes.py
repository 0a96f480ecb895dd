"""Where an asset was last written, as Dagster's event log has it: in the store, or elsewhere.

A materialization without a reference means one of two things, which its step's own events tell apart::

    STEP_OUTPUT, ASSET_MATERIALIZATION..., HANDLED_OUTPUT    an IO manager wrote the value, and not into the store
    STEP_OUTPUT, ASSET_MATERIALIZATION..., anything else     MaterializeResult without a value: nothing was written

So are materializations that code logs or reports by itself: nothing was written. What counts then is the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, DagsterEventType, DagsterInstance
from entrepot.errors import ObjectLost

from entrepot_dagster.values.reference_log import records_of, reference_of

if TYPE_CHECKING:
    from dagster import AssetMaterialization, EventLogRecord
    from entrepot_io.reference import Reference

# In the metadata of what TieredIOManager has written: whether the durable tier has it.
STATE = "entrepot/durable_tier"
# How many materializations before the last are looked through if that one has written nothing: one query for all of
# them, and one for each of their runs.
_OLDER = 100
_EVENTS = {
    DagsterEventType.STEP_OUTPUT,
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.HANDLED_OUTPUT,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.STEP_UP_FOR_RETRY,
}


@dataclass(frozen=True)
class LastWrite:
    """The last materialization of an asset that has written a value.

    Attributes:
        reference: to the value; None: it is not in the store.
        metadata: of the materialization.
        run_id: the run that wrote it.
    """

    reference: Reference | None
    metadata: Mapping[str, Any]
    run_id: str

    def not_in_store(self, key: AssetKey, partition: str | None) -> ObjectLost:
        """Return the error of whoever reads it from the store, where it is not.

        Args:
            key: of the asset.
            partition: of it; None: it has none.
        """
        subject = name_of(key, partition)
        if STATE in self.metadata:
            return ObjectLost(
                f"{subject} was last written in run {self.run_id}, to the durable tier of TieredIOManager alone, as "
                "the store was full or did not answer; what the store may have is older: read it with that "
                "TieredIOManager, or materialize it again"
            )
        return ObjectLost(
            f"{subject} was last materialized in run {self.run_id} by another IO manager, and the store has an older "
            "value or none: materialize it again with EntrepotIOManager, or read it with "
            "TieredIOManager(store=EntrepotIOManager(), durable=...) over that IO manager"
        )


def name_of(key: AssetKey, partition: str | None) -> str:
    """Return what errors call an asset, or a partition of it."""
    return key.to_user_string() + ("" if partition is None else f" ({partition})")


def last_write(instance: DagsterInstance, key: AssetKey, partition: str | None) -> LastWrite | None:
    """Return where an asset was last written; None: it never was, as far as the log has it.

    This is one query if the last materialization has a reference, and a few if not.

    Args:
        instance: has the event log.
        key: of the asset.
        partition: of it; None: it has none.

    Raises:
        InvalidReference: the log holds a damaged one.
    """
    records_filter = records_of(key, partition)
    latest = instance.fetch_materializations(records_filter, limit=1)
    for record in latest.records:
        if (write := _write_of(instance, record, partition)) is not None:
            return write
    if not latest.records:
        return None
    older = instance.fetch_materializations(records_filter, limit=_OLDER, cursor=latest.cursor)
    for record in older.records:
        if (write := _write_of(instance, record, partition)) is not None:
            return write
    return None


def _write_of(instance: DagsterInstance, record: EventLogRecord, partition: str | None) -> LastWrite | None:
    """What a materialization has written; None: nothing, or nothing that this partition would be read from."""
    materialization = record.asset_materialization
    if materialization is None or materialization.partition != partition:
        return None  # the asset had partitions then, and has none now
    metadata = materialization.metadata
    reference = reference_of(metadata, partition)
    if reference is None and not _is_handled(instance, record, materialization):
        return None
    return LastWrite(reference, metadata, record.run_id)


def _is_handled(instance: DagsterInstance, record: EventLogRecord, materialization: AssetMaterialization) -> bool:
    """Whether an IO manager has written what a materialization is about."""
    step_key = record.event_log_entry.step_key
    if step_key is None:
        return False  # reported from outside of any run
    is_output = handled = is_pending = False
    for entry in instance.all_logs(record.run_id, of_type=_EVENTS):
        if entry.step_key != step_key:
            continue
        event_type, event = entry.dagster_event_type, entry.asset_materialization
        if event_type is not DagsterEventType.ASSET_MATERIALIZATION:
            if is_pending:
                handled, is_pending = event_type is DagsterEventType.HANDLED_OUTPUT, False
            is_output = event_type is DagsterEventType.STEP_OUTPUT
        elif event is not None and (event.asset_key, event.partition) == (
            materialization.asset_key,
            materialization.partition,
        ):
            is_pending = True  # of several in the step, the last counts
    # An output whose step goes on, or was killed, right after its materialization: it may have been written.
    return is_output if is_pending else handled
