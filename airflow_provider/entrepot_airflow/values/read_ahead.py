"""Reading the results of mapped tasks in order: entries are requested in batches, and values loaded ahead.

Airflow makes a request for each item, which takes far longer than getting a value from the store. Here, the second of
two successive items causes a batch of entries to be requested. Values are still read one at a time, so that sequences
may be larger than memory; the next few are loaded from disk or from other hosts meanwhile.

    (nothing known) --item i--> (i was read) --i+1 or i-1--> (entries of a batch) --outside of it--> the next batch
                                                              |  entry is out of date, or a value is lost
                                                              `--> the item is read as Airflow does, on its own

A batch's entries may be out of date when they are used, for an instance may run again while its results are read. So
any error is ignored, and the item is requested again: what fails then is the task's error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from entrepot_io.connections import hold_session
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import Reference, is_reference
from entrepot_io.values import is_at_hand, prefetch_values

from entrepot_airflow.compat.lazy_sequences import (
    LazyXComSequence,
    deserialize_entry,
    replace_sequences,
    stored_entries,
)
from entrepot_airflow.configuration import current_settings, policy_path

if TYPE_CHECKING:
    from entrepot import Store

log = plain_logger(__name__)
REFERENCES = 128  # entries requested at once; a reference has less than 2 KB
PLAIN_ENTRIES = 16  # the same, after an entry that has the value itself, of any size
VALUES_AHEAD = 16
BYTES_AHEAD = 256 << 20


class ReadAheadSequence(LazyXComSequence[Any]):
    """Results of the instances of a mapped task, requested in batches when they are read in order."""

    # Set as a whole, so that threads of one task may share the sequence.
    _batch: tuple[int, list[Any], int] | None = None  # index of its first entry, entries, number that was asked for
    _loading: range = range(0)  # indexes whose values are being loaded ahead
    _session: Store | None = None  # that the values of the batch are in; kept open as long as this has it
    _last: int | None = None  # index that was read last
    _single = False  # whether batches failed

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not int or key < 0 or self._single:
            return super().__getitem__(key)
        step = 0 if self._last is None else key - self._last
        self._last = key
        batch = self._batch
        if not _covers(batch, key):
            if step not in (1, -1):
                return super().__getitem__(key)
            batch = self._request_batch(key, step)
        if batch is None:
            return super().__getitem__(key)
        start, entries, asked = batch
        if key - start >= len(entries):
            if len(entries) < asked:
                raise IndexError(key)  # as Airflow does, which tells iterators the end
            return super().__getitem__(key)
        entry = entries[key - start]
        try:
            if is_reference(entry) and not self._may_read(entry):
                return super().__getitem__(key)
            self._load_ahead(key, step, batch)
            return deserialize_entry(entry)
        except EntrepotError as error:
            log.debug("Entrepot: item %d of a batch cannot be read, requesting it again: %s", key, error)
            return super().__getitem__(key)

    def _request_batch(self, key: int, step: int) -> tuple[int, list[Any], int] | None:
        former = self._batch
        size = PLAIN_ENTRIES
        if former is None or any(map(is_reference, former[1][-1:])):
            size = REFERENCES
        start = key if step > 0 else max(0, key - size + 1)
        stop = key + size if step > 0 else key + 1
        try:
            entries = stored_entries(self, start, stop)
        except Exception as error:  # of Airflow, httpx, pydantic: whatever it is, single requests may still succeed
            log.warning("Entrepot: cannot request the results of mapped tasks in batches: %s", error)
            self._single = True
            return None
        first = next(filter(is_reference, entries), None)
        if first is not None:
            with suppress(EntrepotError):  # whoever reads the value is told
                reference = Reference.parse(first)
                self._session = hold_session(current_settings().address, reference.scope, reference.session)
        self._batch = (start, entries, stop - start)
        self._loading = range(0)
        return self._batch

    @staticmethod
    def _may_read(entry: Any) -> bool:
        """Whether to read a reference of a batch. Under a policy, a lost value would cause reruns: look first."""
        return not policy_path() or is_at_hand(Reference.parse(entry), address=current_settings().address)

    def _load_ahead(self, key: int, step: int, batch: tuple[int, list[Any], int]) -> None:
        if step not in (1, -1) or key in self._loading:
            return
        start, entries, _ = batch
        stop = min(key + VALUES_AHEAD * step, start + len(entries)) if step > 0 else max(key - VALUES_AHEAD, start - 1)
        references: list[Reference] = []
        size = 0
        ahead = range(key, stop, step)
        for count, index in enumerate(ahead):
            entry = entries[index - start]
            if is_reference(entry):
                reference = Reference.parse(entry)
                size += reference.nbytes
                if size > BYTES_AHEAD and count > 0:
                    ahead = ahead[:count]
                    break
                references.append(reference)
        self._loading = ahead
        if len(references) > 1:
            prefetch_values(references, address=current_settings().address)


def _covers(batch: tuple[int, list[Any], int] | None, key: int) -> bool:
    return batch is not None and batch[0] <= key < batch[0] + batch[2]


def install() -> None:
    """Let the tasks of this process get such sequences."""
    replace_sequences(ReadAheadSequence)
