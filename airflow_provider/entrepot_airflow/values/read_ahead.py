"""Reading the results of mapped tasks in order: entries are requested in batches, and values loaded ahead.

Airflow makes a request for each item, which takes far longer than getting a value from the store. Here, an iteration
begins with a request for a batch of entries, and so does the second of two successive items that are read by index: who
reads the first of 10,000 by its index pays for no other. Later batches are larger. Values are still read one at a time,
so that sequences may be larger than memory; the next few are loaded from disk or from other hosts meanwhile.

    (nothing known) --item i--> (i was read) --i+1 or i-1--> (entries of a batch) --outside of it--> the next batch
          |                                                   ^  |  entry is out of date, or a value is lost
          `--iter() or reversed()-----------------------------'  `--> the item is read as Airflow does, on its own

A batch's entries may be out of date when they are used, for an instance may run again while its results are read. So
any error is ignored, and the item is requested again: what fails then is the task's error.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from entrepot_airflow.values.xcom_values import settings_of_values

if TYPE_CHECKING:
    from entrepot import Store

log = plain_logger(__name__)
REFERENCES = 128  # entries requested at first; a reference has less than 2 KB
MORE_REFERENCES = 1024  # the most that are requested at once; each batch is twice as large as the one before
PLAIN_ENTRIES = 16  # entries requested at once after an entry that has the value itself, of any size
VALUES_AHEAD = 16
BYTES_AHEAD = 256 << 20


class ReadAheadSequence(LazyXComSequence[Any]):
    """Results of the instances of a mapped task, requested in batches when they are read in order."""

    # Set as a whole, so that threads of one task may share the sequence.
    _batch: tuple[int, list[Any], int] | None = None  # index of its first entry, entries, number that was asked for
    _loading: range = range(0)  # indexes whose values are being loaded ahead
    _session: Store | None = None  # that the values of the batch are in; kept open as long as this has it
    _last: int | None = None  # index that was read last, or that precedes an iteration
    _single = False  # whether batches failed

    def __iter__(self) -> Iterator[Any]:
        self._last = -1
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        self._last = len(self)
        return super().__reversed__()

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
        size = _batch_size(self._batch, key, step)
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
                # With the rule for pickled values in effect, with which each of them is read.
                self._session = hold_session(settings_of_values().address, reference.scope, reference.session)
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


def _batch_size(former: tuple[int, list[Any], int] | None, key: int, step: int) -> int:
    """Return how many entries to request from an index on, after a former batch."""
    if former is None:
        return REFERENCES
    start, entries, asked = former
    if not all(map(is_reference, entries[-1:])):
        return PLAIN_ENTRIES
    goes_on = key == (start + asked if step > 0 else start - 1)
    if goes_on and asked >= REFERENCES and all(map(is_reference, entries)):
        return min(2 * asked, MORE_REFERENCES)
    return REFERENCES


def _covers(batch: tuple[int, list[Any], int] | None, key: int) -> bool:
    return batch is not None and batch[0] <= key < batch[0] + batch[2]


def install() -> None:
    """Let the tasks of this process get such sequences."""
    replace_sequences(ReadAheadSequence)
