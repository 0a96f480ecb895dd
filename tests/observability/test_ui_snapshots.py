"""Listing objects again and again: the next snapshot's order, and what the cycle collector passes over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import entrepot
from entrepot_ui.watch.rows import ObjectRow, row_of
from entrepot_ui.watch.snapshot import Query, Snapshot
from entrepot_ui.watch.watcher import StoreWatcher


def _row(number: int, nbytes: int) -> ObjectRow:
    record = {
        "id": f"{number:040x}",
        "generation": 1,
        "state": "sealed",
        "scope": "default",
        "session": "",
        "locality_set": "",
        "names": [f"table-{number}"],
        "sealed_unix_ns": number,
        "blob_count": 0,
        "user_pinned": False,
    }
    return row_of(record, "bytes", nbytes)


def test_prepared_order_is_that_of_the_new_objects() -> None:
    former = Snapshot([_row(number, number * 37 % 101) for number in range(100)])
    queries = [Query(), Query("table-1", "names", False)]
    for query in queries:
        former.matching(query)
    # Half are gone, some have changed their size, some are new.
    rows = [_row(number, number * 53 % 101) for number in range(50, 150)]
    prepared, fresh = Snapshot(rows), Snapshot(rows)
    prepared.prepare(former)
    assert set(prepared._orders) == set(queries)  # evaluated already
    for query in queries:
        keys = [(row.nbytes if query.sort == "nbytes" else row.names) for row in prepared.matching(query)]
        assert keys == sorted(keys, reverse=query.descending)
        assert sorted(row.id for row in prepared.matching(query)) == sorted(row.id for row in fresh.matching(query))


def test_rows_of_many_objects_do_not_hold_up_threads_by_collection(
    session: entrepot.Store, module_daemon: Any, wait_until: Callable[..., Any]
) -> None:
    session.put_many([b"x"] * 10_000)
    before = gc.get_freeze_count()
    watcher = StoreWatcher(module_daemon.address, 0.1, details=False)
    try:
        wait_until(lambda: len(watcher.view().snapshot.rows) >= 10_000, "all objects to be listed")
        assert gc.get_freeze_count() >= before + 10_000
    finally:
        watcher.close()
        gc.unfreeze()
