"""Watches one store from a thread, so that no view waits for a store that hangs.

connecting ──status──▶ live ──error, or no answer for MAX_AGE seconds──▶ lost ──status──▶ live

The status is asked for at an interval. Objects are listed when the status says that something has changed, and now and
then in any case, but listing never takes more than a given share of the time: a list of 100,000 objects costs the store
and this process something.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import entrepot
from entrepot._client.queries import iter_objects
from entrepot.errors import EntrepotError
from entrepot.inventory import kind_of

from entrepot_ui.watch.details import DetailReader, Details
from entrepot_ui.watch.events import EventLog, Status, compare
from entrepot_ui.watch.policy_log import ALERTS, PolicyLog
from entrepot_ui.watch.rows import ObjectRow, row_of
from entrepot_ui.watch.snapshot import Snapshot

MAX_OBJECTS = 200_000  # that are listed; a million would take this process a gigabyte
MAX_LIST_AGE = 30.0  # seconds after which objects are listed although nothing seems to have changed
MAX_AGE = 5.0  # seconds without an answer after which a store counts as lost
_RECORDS_BETWEEN_SIGNS = 1000
_MANY_ROWS = 10_000
_CONNECTING, _LIVE, _LOST = "connecting", "live", "lost"


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the store.

    Attributes:
        state: ``"connecting"``, ``"live"`` or ``"lost"``.
        reason: why it is not live.
        status: the latest status; None: there was none yet.
        answered_at: when it was asked for, in seconds since 1970.
        snapshot, details: the objects.
        rates: bytes a second that were evicted, reloaded and written to disk, between the latest two statuses.
    """

    state: str = _CONNECTING
    reason: str = "not connected yet"
    status: Status | None = None
    answered_at: float = 0.0
    snapshot: Snapshot = field(default_factory=Snapshot)
    details: Details = field(default_factory=Details)
    rates: dict[str, float] = field(default_factory=dict[str, float])


class StoreWatcher:
    """Has the latest view of a store, and its events.

    Args:
        address: of the store, ``unix:///path``.
        interval: seconds between two statuses.
        list_share: largest part of the time that is spent on listing objects.
        details: whether to ask for pins and sharing, too.
        policy_log: whose new lines become events; None: none.
    """

    def __init__(
        self,
        address: str,
        interval: float,
        *,
        list_share: float = 0.1,
        details: bool = True,
        policy_log: PolicyLog | None = None,
    ) -> None:
        self.events = EventLog()
        self._policy_log = policy_log
        self._address = address
        self._interval = interval
        self._list_share = list_share
        self._with_details = details
        self._lock = threading.Lock()
        self._view = View()  # guarded by _lock, as the next
        self._heard_at = 0.0  # when the store last answered anything, in seconds since 1970
        self._ended = threading.Event()
        self._wanted = threading.Event()  # somebody changed something: look at once
        # All of the thread from here on.
        self._store: entrepot.Store | None = None
        self._reader = DetailReader()
        self._rows: dict[str, ObjectRow] = {}
        self._listed_for: tuple[Any, ...] = ()
        self._listed_at = self._list_again_at = -float("inf")
        self._thread = threading.Thread(target=self._watch, name="entrepot-watcher", daemon=True)
        self._thread.start()

    def view(self) -> View:
        """What is known now."""
        with self._lock:
            view, heard_at = self._view, self._heard_at
        age = time.time() - heard_at
        if view.state == _LIVE and age > MAX_AGE + self._interval:
            reason = f"the store has not answered for {age:.0f} s"
            return View(_LOST, reason, view.status, view.answered_at, view.snapshot, view.details)
        return view

    def look_now(self) -> None:
        """Ask the store at once, and list its objects."""
        self._wanted.set()

    def close(self, timeout: float = 5.0) -> None:
        """Stop watching. A question that a store does not answer is not waited for longer than this."""
        self._ended.set()
        self._wanted.set()
        self._thread.join(timeout)

    def _watch(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            wanted = self._wanted.is_set()
            self._wanted.clear()
            for event in self._policy_log.poll() if self._policy_log is not None else ():
                self.events.add(
                    event.kind.replace("_", " "), event.summary.removeprefix(": ").strip(), alert=event.kind in ALERTS
                )
            try:
                self._look(wanted)
            except EntrepotError as error:
                self._set_lost(str(error))
            self._wanted.wait(max(self._interval - (time.monotonic() - began), 0.05))
        self._disconnect()

    def _look(self, wanted: bool) -> None:
        if self._store is None:
            self._store = entrepot.connect(self._address, session="", scope="default", durable=False)
        asked_at = time.time()
        status = self._store.status()
        self._heard()
        before = self._view
        if before.status is not None:
            for kind, text, alert in compare(before.status, status):
                self.events.add(kind, text, alert=alert)
        if before.state != _LIVE:
            self.events.add("connected", f"connected to store {status['instance']}")
        snapshot, details = before.snapshot, before.details
        self._set(View(_LIVE, "", status, asked_at, snapshot, details, _rates(before, status, asked_at)))
        fingerprint = _fingerprint(status)
        now = time.monotonic()
        changed = fingerprint != self._listed_for or now - self._listed_at > MAX_LIST_AGE
        if not wanted and (not changed or now < self._list_again_at):
            return
        snapshot = self._list(self._store)
        snapshot.prepare(before.snapshot)
        if self._with_details:
            details = self._reader.read(self._store, snapshot.rows)
        took = time.monotonic() - now
        self._listed_for, self._listed_at = fingerprint, now
        self._list_again_at = now + took / self._list_share
        self._set(View(_LIVE, "", status, asked_at, snapshot, details, self._view.rates))

    def _list(self, store: entrepot.Store) -> Snapshot:
        raw, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
        taken_at = time.time()
        records = iter_objects(raw, session, all_sessions=True)
        rows: dict[str, ObjectRow] = {}
        created = 0
        for number, record in enumerate(islice(records, MAX_OBJECTS)):
            if number % _RECORDS_BETWEEN_SIGNS == 0:
                self._heard()  # each page of the list is an answer
            row = self._rows.get(record["id"])
            if row is None or row.generation != record["generation"]:
                rows[record["id"]] = _new_row(store, record)
                created += 1
            else:
                rows[record["id"]] = _changed_row(row, record)
        truncated = next(records, None) is not None
        self._rows = rows
        if created >= _MANY_ROWS:
            _exempt_from_collection()
        return Snapshot(list(rows.values()), taken_at, truncated)

    def _set(self, view: View) -> None:
        with self._lock:
            self._view = view

    def _heard(self) -> None:
        with self._lock:
            self._heard_at = time.time()

    def _set_lost(self, reason: str) -> None:
        before = self._view
        if before.state == _LIVE:
            self.events.add("lost", f"the store does not answer: {reason}", alert=True)
        state = _LOST if before.status is not None else _CONNECTING
        self._set(View(state, reason, before.status, before.answered_at, before.snapshot, before.details))
        self._disconnect()

    def _disconnect(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = None
        self._listed_for = ()


def _exempt_from_collection() -> None:
    """Have the cycle collector pass over what exists now.

    Rows form no cycles, and looking at 100,000 of them would stop all threads of this process, which does nothing but
    show a store, for 0.1 s now and again.
    """
    gc.collect()
    gc.freeze()


def _new_row(store: entrepot.Store, record: dict[str, Any]) -> ObjectRow:
    kind = kind_of(store, entrepot.ObjectID(record["id"]))
    if kind is None:
        return row_of(record, "", record["nbytes"])
    if kind.members is None:
        return row_of(record, kind.type, record["nbytes"] + kind.nbytes)
    return row_of(record, f"collection of {kind.members} {kind.type}".rstrip(), kind.nbytes)


def _changed_row(row: ObjectRow, record: dict[str, Any]) -> ObjectRow:
    same = (
        row.state == record["state"]
        and row.names == ", ".join(record["names"])
        and row.locality_set == record["locality_set"]
        and row.kept == record["user_pinned"]
        and row.session == record["session"]
    )
    return row if same else row_of(record, row.type, row.nbytes)


def _fingerprint(status: Status) -> tuple[Any, ...]:
    """What changes when objects come, go or move, or when readers pin others."""
    spill = status["spill"]
    counters = [spill.get(key, 0) for key in ("evictions", "loads", "written_bytes")]
    pins = tuple((client["client"], client["pins"]) for client in status["clients"])
    keys = ("instance", "incarnation", "objects", "names", "used_bytes", "record_bytes", "pinned_bytes", "drops")
    return (*(status[key] for key in keys), status["spilled_bytes"], status["deferred_frees"], *counters, pins)


_RATES: dict[str, Callable[[Status], int]] = {
    "evicted": lambda status: status["spill"].get("evicted_bytes", 0),
    "reloaded": lambda status: status["spill"].get("loaded_bytes", 0),
    "written": lambda status: status["spill"].get("written_bytes", 0),
}


def _rates(before: View, status: Status, asked_at: float) -> dict[str, float]:
    if before.status is None or asked_at <= before.answered_at or before.status["pid"] != status["pid"]:
        return {}
    elapsed = asked_at - before.answered_at
    return {name: max(0, count(status) - count(before.status)) / elapsed for name, count in _RATES.items()}
