"""One client used by many threads at once, whether or not Python has a GIL: a free-threaded one runs them in parallel.

`tools/wheel_smoke_test.py` does the like with a wheel for a Python without a GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import numpy as np
from entrepot.errors import InvalidArgument

THREADS = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Results of ``work(0)``, ``work(1)``, ... in threads that begin together."""
    started = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        started.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result(timeout=90) for done in [pool.submit(begin, number) for number in range(THREADS)]]


def test_threads_put_get_and_delete(store: entrepot.Store) -> None:
    def work(number: int) -> None:
        for turn in range(200):
            small = store.put(b"%d of %d" % (turn, number))
            large = store.put(np.full(5_000, number * 1000 + turn))
            assert store.get(small) == b"%d of %d" % (turn, number)
            assert store.get(large)[-1] == number * 1000 + turn
            assert store.delete(small)
            assert store.delete(large)

    at_once(work)
    assert not store.list()
    assert store._client.raw.pins == 0


def test_of_threads_that_seal_a_blob_one_succeeds(store: entrepot.Store) -> None:
    raw = store._client.raw
    for _ in range(40):
        blob = raw.create(100_000, 10)
        memoryview(blob).cast("B")[:5] = b"bytes"
        ids = [entrepot.ObjectID.random() for _ in range(THREADS)]

        def seal(number: int, blob: Any = blob, ids: Any = ids) -> bool:
            item = (ids[number].binary, store._session.number, False, True, "", b"", ())
            try:
                raw.seal(blob, item)
            except InvalidArgument:  # already sealed
                return False
            return True

        sealed = at_once(seal)
        assert sealed.count(True) == 1
        (listed,) = store.list()
        assert listed.id == ids[sealed.index(True)]
        assert store.delete(listed.id)


def test_of_threads_that_seal_and_drop_a_blob_one_succeeds(store: entrepot.Store) -> None:
    raw = store._client.raw
    used = store.status()["used_bytes"]
    for _ in range(40):
        blob = raw.create(100_000, 10)
        oid = entrepot.ObjectID.random()

        def end(number: int, blob: Any = blob, oid: Any = oid) -> bool:
            if number > 0:
                blob.drop()
                return False
            try:
                raw.seal(blob, (oid.binary, store._session.number, False, True, "", b"", ()))
            except InvalidArgument:
                return False
            return True

        sealed = at_once(end)[0]
        assert not blob.open
        assert [each.id for each in store.list()] == ([oid] if sealed else [])
        if sealed:
            store.delete(oid)
    assert store.status()["used_bytes"] == used


def test_threads_that_use_the_store_reach_the_next_one_together(daemon: Any, store: entrepot.Store) -> None:
    replaced_once = threading.Event()

    def work(number: int) -> int:
        after = 0
        while after < 50:
            is_replaced = replaced_once.is_set()
            try:
                oid = store.put(b"%d" % number)
                assert store.get(oid) == b"%d" % number
            except (entrepot.ObjectLost, entrepot.StoreUnavailable):  # put before, got after; neither store is there
                assert not is_replaced
                continue
            after += is_replaced
        return after

    before = store.instance_id
    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work, number) for number in range(8)]
        daemon.kill(entrepot.connect(daemon.address))
        daemon.start()
        replaced_once.set()
        assert [done.result(timeout=60) for done in working] == [50] * 8
    assert store.instance_id != before
