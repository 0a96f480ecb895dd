"""Assets that a durable tier writes in the background, and what Dagster's event log says about that.

A materialization whose durable copy is still to be written has the metadata ``entrepot/durable_write``, an ID; what
became of it is an observation of the asset with the same ID::

    materialization, "pending" --> observation, "written"
                               --> observation, "failed: ..."
                               --> no observation: the write goes on, or its process was killed

A durable tier overwrites an asset in place, so until "written" it may have an older value, which must not be read in
the place of one that the store has lost.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetObservation, DagsterInstance, MetadataValue
from entrepot.errors import EntrepotError

from entrepot_dagster.values.last_writes import STATE, last_write
from entrepot_dagster.values.reference_log import records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster import OutputContext

WRITE = "entrepot/durable_write"
PENDING, WRITTEN, FAILED = "pending: written in the background", "written", "failed"
STORE_ALONE = "it was written to the store alone"
_PAGE, _PAGES = 100, 20  # observations that are looked through for one ID, the latest first
_NO_ID = MetadataValue.text("")


class DurableWriteFailed(EntrepotError):
    """Values could not be written to a durable tier in the background; each is named in the run's log."""

    short_code = "E704"


class DurableReadFailed(EntrepotError):
    """The durable tier has a value that it cannot read, such as a file that was not written to its end."""

    short_code = "E707"


@dataclass(frozen=True)
class _Write:
    """A write that has begun.

    Attributes:
        id: of the write.
        asset: what it writes.
        done: its end.
    """

    id: str
    asset: str
    done: Future[None]


class BackgroundWrites:
    """The writes of one IO manager, one after the other in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes: dict[str, _Write] = {}  # guarded by _lock; by ID
        self._executor: ThreadPoolExecutor | None = None  # guarded by _lock

    def begin(self, context: OutputContext, instance: DagsterInstance, write: Callable[[], None]) -> str:
        """Begin to write an asset; return the ID of the write, for its materialization.

        Args:
            context: of the output, which must be an asset's.
            instance: gets the observation.
            write: writes it.
        """
        write_id = uuid.uuid4().hex
        asset_key = context.asset_key
        partitions: list[str | None] = list(context.asset_partition_keys) if context.has_asset_partitions else [None]

        def run() -> None:
            try:
                write()
            except Exception as error:
                text = f"{FAILED}: {type(error).__name__}: {error}"
                context.log.error(
                    f"Entrepot: {asset_key.to_user_string()} is in the store, but was not written to the durable "
                    f"tier ({text}): materialize it again"
                )
                _report(instance, asset_key, partitions, write_id, text)
                raise
            _report(instance, asset_key, partitions, write_id, WRITTEN)

        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="entrepot-durable")
            write_begun = _Write(write_id, asset_key.to_user_string(), self._executor.submit(run))
            self._writes[write_id] = write_begun
        return write_id

    def wait(self, write_id: str) -> None:
        """Wait for the end of a write, if it is one of this process's; its outcome is in the event log."""
        with self._lock:
            write = self._writes.get(write_id)
        if write is not None:
            write.done.exception()

    def finish(self) -> None:
        """Wait for all writes.

        Raises:
            DurableWriteFailed: some have failed.
        """
        with self._lock:
            executor, self._executor = self._executor, None
            writes, self._writes = self._writes, {}
        if executor is None:
            return
        executor.shutdown()
        failed = [(write, error) for write in writes.values() if (error := write.done.exception()) is not None]
        if failed:
            names = ", ".join(sorted({write.asset for write, _ in failed}))
            raise DurableWriteFailed(
                f"the durable tier does not have {names}, which the store has: materialize again what must outlive the "
                f"store ({failed[0][1]})"
            ) from failed[0][1]


def missing_durable_copy(
    instance: DagsterInstance, asset_key: AssetKey, partition: str | None, writes: BackgroundWrites
) -> str | None:
    """Return why the durable tier may not have an asset's last value; None: it has, as far as is known.

    Args:
        instance: has the event log.
        asset_key: of the asset.
        partition: of it; None: it has none.
        writes: of this process; one that is still going on is waited for.
    """
    write = last_write(instance, asset_key, partition)
    if write is None:
        return None
    if write.reference is not None and STATE not in write.metadata:
        return f"{STORE_ALONE}, in run {write.run_id} without TieredIOManager"
    write_id = write.metadata.get(WRITE, _NO_ID).value
    if not write_id:
        return None
    writes.wait(str(write_id))
    records_filter = records_of(asset_key, partition)
    cursor: str | None = None
    for _ in range(_PAGES):
        page = instance.fetch_observations(records_filter, limit=_PAGE, cursor=cursor)
        for record in page.records:
            observation = record.event_log_entry.asset_observation
            if observation is not None and observation.metadata.get(WRITE, _NO_ID).value == write_id:
                state = str(observation.metadata[STATE].value)
                return None if state == WRITTEN else state
        if not page.has_more:
            break
        cursor = page.cursor
    return "its write in the background goes on in another process, or was killed with that process"


def _report(
    instance: DagsterInstance, asset_key: AssetKey, partitions: Sequence[str | None], write_id: str, state: str
) -> None:
    for partition in partitions:
        instance.report_runless_asset_event(
            AssetObservation(
                asset_key,
                partition=partition,
                description=f"Durable tier: {state}",
                metadata={WRITE: MetadataValue.text(write_id), STATE: MetadataValue.text(state)},
            )
        )
