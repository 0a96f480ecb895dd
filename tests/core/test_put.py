"""Putting: existing data is not copied, equal content is one object; names, sessions, batches."""

from __future__ import annotations

import threading
import time
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import _core

pa = pytest.importorskip("pyarrow")
MIB = 1 << 20


def test_put_of_a_table_with_an_added_column_writes_only_the_new_bytes(store: entrepot.Store) -> None:
    rows = 500_000
    table = pa.table({name: np.arange(rows) + number for number, name in enumerate("abcd")})
    oid = store.put(table)
    before = store.status()
    loaded = store.get(oid)
    wider = loaded.append_column("e", pa.array(np.arange(rows) * 2))
    other = store.put(wider)
    after = store.status()
    new_bytes = after["used_bytes"] - before["used_bytes"]
    assert rows * 8 <= new_bytes < rows * 8 + MIB
    assert store.get(other).equals(wider)
    shared = {blob["blob"] for blob in store.info(oid).blobs}
    assert shared <= {blob["blob"] for blob in store.info(other).blobs}
    del loaded, wider
    assert store.delete(oid)
    assert store.get(other).column("a").to_numpy()[7] == 7


def test_an_array_from_the_store_is_put_by_reference(store: entrepot.Store) -> None:
    oid = store.put(np.arange(1_000_000))
    before = store.status()["used_bytes"]
    referring = store.put({"whole": store.get(oid), "half": store.get(oid)[:600_000]})
    assert store.status()["used_bytes"] - before < 64 << 10
    assert store.get(referring)["half"][-1] == 599_999


def test_a_small_slice_does_not_keep_a_large_parent(store: entrepot.Store, wait_until: Any) -> None:
    oid = store.put(np.arange(4 * MIB))
    piece = store.put(store.get(oid)[: 64 << 10])
    assert store.delete(oid)
    wait_until(lambda: store.status()["payload_bytes"] < 2 * MIB, "the parent to be freed")
    assert store.get(piece)[100] == 100


def test_an_array_of_a_write_copy_is_copied(store: entrepot.Store) -> None:
    oid = store.put(np.arange(1_000_000))
    mine = store.get(oid, copy="on_write")
    mine[0] = 42
    changed = store.put(mine)
    assert store.get(changed)[0] == 42
    assert store.get(oid)[0] == 0


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_identical_content_twice_is_success(store: entrepot.Store, size: int) -> None:
    oid = store.derive("task/return")
    assert store.derive("task/return") == oid
    assert store.put(np.arange(size), id=oid) == oid
    generation = store.generation_of(oid)
    assert store.put(np.arange(size), id=oid) == oid
    assert store.generation_of(oid) == generation
    assert store.status()["objects"] == 1


def test_replace_is_another_generation(store: entrepot.Store) -> None:
    oid = store.put([1], id=store.derive("k"))
    first = store.info(oid).generation
    store.put([2], id=oid, replace=True)
    assert store.get(oid) == [2]
    assert store.info(oid).generation != first


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_put_reports_its_generation(store: entrepot.Store, size: int) -> None:
    oid = store.derive("k")
    first = store.put_versioned(np.zeros(size), id=oid)
    info = store.info(oid)
    assert first == entrepot.PutResult(oid, info.generation, info.nbytes, existed=False)
    repeated = store.put_versioned(np.zeros(size), id=oid)
    assert repeated == entrepot.PutResult(oid, info.generation, info.nbytes, existed=True)
    replaced = store.put_versioned(np.ones(size), id=oid, replace=True)
    assert replaced.generation != first.generation
    value, generation = store.get_versioned(oid)
    assert (value[0], generation) == (1, replaced.generation)


def test_a_blob_reports_its_generation(store: entrepot.Store) -> None:
    for size in (100, 100_000):
        with store.create(size) as blob:
            assert blob.receipt is None
        info = store.info(blob.id)
        assert blob.receipt == entrepot.PutResult(blob.id, info.generation, size, existed=False)


def test_the_size_of_every_kind_is_the_stores(store: entrepot.Store) -> None:
    table = pa.table({"a": np.arange(50_000), "when": pa.array(np.arange(50_000), pa.timestamp("us"))})
    times = np.arange("2020", "2100", dtype="datetime64[h]")
    for value in (table, times, times[::2], [times, table], b"x" * 100_000, {"plain": [1, None]}):
        receipt = store.put_versioned(value)
        assert receipt.nbytes == store.info(receipt.id).nbytes
    shared = store.put_versioned(store.get(store.put(table)).slice(100, 10_000))
    assert shared.nbytes == store.info(shared.id).nbytes


def test_racing_writers_of_one_id(store: entrepot.Store) -> None:
    oid = store.derive("race")
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait(30)
        try:
            store.put(np.full(50_000, number % 2), id=oid)
            outcomes.append("sealed")
        except entrepot.ObjectExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["exists"] * 4 + ["sealed"] * 4
    assert len(set(store.get(oid).tolist())) == 1


def test_threads_put_and_get(store: entrepot.Store) -> None:
    failures: list[Any] = []

    def work(number: int) -> None:
        for turn in range(40):
            size = (turn * 7919 + number) % 200_000
            oid = store.put(np.full(size, number * 1000 + turn))
            value = store.get(oid)
            if value.shape != (size,) or (size and not (value == number * 1000 + turn).all()):
                failures.append((number, turn))
            if turn % 3:
                store.delete(oid)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_sessions_are_apart(store: entrepot.Store, wait_until: Any) -> None:
    run = store.session("run-1", ttl=3600)
    oid = run.put(b"x" * 50_000, name="n")
    assert [info.id for info in run.list()] == [oid]
    assert store.list() == []
    assert [info.id for info in store.list(session="run-1")] == [oid]
    with pytest.raises(entrepot.ObjectNotFound):
        store.resolve("n")
    with pytest.raises(entrepot.ObjectNotFound):
        store.list(session="none")
    sessions = {info.session: info for info in store.sessions()}
    assert sessions["run-1"].ttl_seconds == 3600
    assert sessions["run-1"].objects == 1
    assert run.derive("k") != store.derive("k")
    store.remove_session("run-1")
    assert not store.exists(oid)
    wait_until(lambda: store.status()["payload_bytes"] == 0, "the session's memory to be free")


@pytest.mark.slow
def test_a_session_ends_by_itself_though_its_process_stays(store: entrepot.Store, wait_until: Any) -> None:
    run, second = store.session("short", ttl=1), store.session("short")
    oid = run.put(b"x" * 50_000)
    run.close()
    second.put(b"y")
    assert store.exists(oid)  # another store of this process still has the session open
    second.close()
    wait_until(lambda: not store.exists(oid), "the session to end", 60)
    assert "short" not in [session.session for session in store.sessions()]


def test_lists_match_names_and_ids(store: entrepot.Store) -> None:
    oid = store.put([1], name="orders-2024")
    store.put([2], name="customers")
    assert [item.id for item in store.list("ord*")] == [oid]
    assert [item.id for item in store.list(f"{str(oid)[:12]}*")] == [oid]
    info = store.list("ord*")[0]
    assert (info.names, info.type, info.state) == (["orders-2024"], "python.data", "sealed")
    assert abs(info.created - time.time()) < 600


def test_a_store_can_be_sent_to_another_process(store: entrepot.Store) -> None:
    import pickle

    unpickled = pickle.loads(pickle.dumps(store.session("run")))
    assert (unpickled.address, unpickled.scope, unpickled.session_name) == (store.address, "tests", "run")
    unpickled.close()
    assert not store.closed


def test_interrupt_ends_a_wait(store: entrepot.Store, spawn: Any, wait_until: Any) -> None:
    import signal

    waiter = spawn(
        """
        import signal

        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests were started
        print("ready", flush=True)
        try:
            store.get("0" * 40, timeout=60)
        except KeyboardInterrupt:
            print("interrupted", len(store.list()), flush=True)
        """
    )
    assert waiter.stdout.readline() == "ready\n"
    wait_until(lambda: store.status()["waiting"] == 1, "the get to wait")
    waiter.send_signal(signal.SIGINT)
    out, _ = waiter.communicate(timeout=20)
    assert out == "interrupted 0\n"


def test_the_extension_names_how_it_copies() -> None:
    assert _core.copy_kind() in {"avx2", "sse2", "memcpy"}
