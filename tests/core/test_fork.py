"""Fork, spawn and threads: a child has its own pins, inherits no lease, and does not affect its parent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.garbage import unused_sessions

sys.path.insert(0, str(Path(__file__).parent))

from forked_child import in_child

MIB = 1 << 20


def test_a_forked_child_reads_writes_and_outlives_the_parents_pin(store: entrepot.Store, wait_until: Any) -> None:
    oid = store.put(np.full(500_000, 3))
    pinned_values = [store.get(oid)]
    go_read, go_write = os.pipe()
    child_oid = store.derive("from child")

    def child() -> None:
        os.close(go_write)
        assert os.read(go_read, 1) == b"1"
        assert (pinned_values[0] == 3).all()  # the parent has released it, and the object is deleted
        store.put(np.full(100_000, 4), id=child_oid)
        assert store.get(child_oid)[0] == 4
        labels = [client["pid"] for client in store.status()["clients"]]
        assert len(labels) == 2

    wait = in_child(child)
    pinned_values.clear()
    gc.collect()
    assert store.delete(oid)
    for _ in range(20):
        store.delete(store.put(np.zeros(4 * MIB)))
    assert store.status()["deferred_frees"] == 1
    os.write(go_write, b"1")
    wait()
    os.close(go_read)
    os.close(go_write)
    assert store.get(child_oid)[0] == 4
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the dead child's pin to go")
    wait_until(lambda: len(store.status()["clients"]) == 1, "the child's registration to go")


def test_a_child_is_listed_under_its_own_process_also_by_the_next_daemon(
    store: entrepot.Store, wait_until: Any
) -> None:
    """Although it asks the store for nothing: it only holds what it inherited."""
    oid = store.put(np.full(500_000, 3))
    held = store.get(oid)
    end_read, end_write = os.pipe()

    def child() -> None:
        os.close(end_write)
        assert os.read(end_read, 1) == b""
        assert (held == 3).all()

    wait = in_child(child)
    os.close(end_read)

    def pids() -> set[int]:
        return {holder["pid"] for holder in store.info(oid).pinned_by}

    wait_until(lambda: len(pids()) == 2 and 0 not in pids(), "the child's process to be known")
    (child_pid,) = pids() - {os.getpid()}
    assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{child_pid}/status").read_text()
    daemon_pid = store.status()["pid"]
    os.kill(daemon_pid, signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] != daemon_pid, "the next daemon")
    wait_until(lambda: pids() == {os.getpid(), child_pid}, "it to know both")
    os.close(end_write)
    wait()


def test_a_child_does_not_keep_the_parents_sessions_open(store: entrepot.Store) -> None:
    """Not even after it has opened and closed them itself; stores that it inherited stay usable."""
    run = store.session("run")
    used_read, used_write = os.pipe()
    end_read, end_write = os.pipe()

    def child() -> None:
        own = store.session("run")
        own.put(b"1")
        assert not unused_sessions(own, own.scope), "it is open here, and in the parent"
        own.close()
        run.put(b"2", name="of the child")
        os.write(used_write, b"1")
        assert os.read(end_read, 1) == b"1"
        store.session("run").close()
        run.close()

    wait = in_child(child)
    assert os.read(used_read, 1) == b"1"
    assert not unused_sessions(store, store.scope)
    run.close()
    assert set(unused_sessions(store, store.scope)) == {"run"}
    os.write(end_write, b"1")
    wait()
    for end in (used_read, used_write, end_read, end_write):
        os.close(end)
    with store.session("run") as again:
        assert again.get_by_name("of the child") == b"2"


def test_a_child_gets_a_private_copy_of_an_unsealed_blob(store: entrepot.Store) -> None:
    with store.create(300_000) as blob:
        blob.view[:5] = b"first"

        def child() -> None:
            assert bytes(blob.view[:5]) == b"first"
            blob.view[:5] = b"child"
            with pytest.raises(entrepot.EntrepotError):
                store._client.raw.seal(  # pyright: ignore[reportPrivateUsage]
                    blob._raw,  # pyright: ignore[reportPrivateUsage]
                    (blob.id.binary, 0, False, True, "", b"", ()),
                )
            other = store.put(np.full(100_000, 9))
            assert store.get(other)[5] == 9

        in_child(child)()
        assert bytes(blob.view[:5]) == b"first"
        blob.view[5:9] = b"more"
    assert bytes(store.get(blob.id).view[:9]) == b"firstmore"


def test_forks_while_threads_work(store: entrepot.Store) -> None:
    stop = threading.Event()
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                oid = store.put(np.full(20_000, number))
                assert store.get(oid)[-1] == number
                store.delete(oid)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        pinned_value = store.get(store.put(np.arange(50_000)))

        def child() -> None:
            assert pinned_value[77] == 77
            assert store.get(store.put(np.full(30_000, 5)))[0] == 5

        for _ in range(10):
            in_child(child)()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures, failures[0]


def test_a_child_of_a_child(store: entrepot.Store) -> None:
    value = store.get(store.put(np.arange(100_000)))

    def child() -> None:
        def grandchild() -> None:
            assert value[9] == 9
            assert store.get(store.put([1])) == [1]

        in_child(grandchild)()
        assert value[10] == 10

    in_child(child)()


def test_a_closed_stores_values_stay_readable_in_the_child(daemon: Any) -> None:
    store = entrepot.connect(daemon.address)
    value = store.get(store.put(np.arange(100_000)))
    store.close()

    def child() -> None:
        assert value[9] == 9
        with entrepot.connect(daemon.address) as child_store:
            assert child_store.get(child_store.put([1])) == [1]

    in_child(child)()


def test_a_fork_while_the_daemon_is_gone(daemon: Any, store: entrepot.Store) -> None:
    value = store.get(store.put(np.arange(100_000)))
    daemon.stop()

    def child() -> None:
        assert value[9] == 9
        with pytest.raises(entrepot.StoreUnavailable, match="entrepot start"):
            store.put(1)

    in_child(child)()


def worker(address: str, oid: str) -> int:
    with entrepot.connect(address, scope="tests") as worker_store:
        return int(worker_store.get(oid).sum())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(daemon: Any, store: entrepot.Store, method: str) -> None:
    oid = store.put(np.arange(100_000))
    value = store.get(oid)
    context = multiprocessing.get_context(method)
    if method == "fork":
        with context.Pool(2) as pool:
            sums = pool.starmap(worker, [(daemon.address, str(oid))] * 6)
        assert sums == [100_000 * 99_999 // 2] * 6
    else:
        # A spawned child's arguments are pickled: an importable function and the store.
        with context.Pool(2) as pool:
            results = [pool.apply_async(store.get, (oid,)) for _ in range(4)]
            assert all(np.array_equal(result.get(60), value) for result in results)
    assert value[3] == 3


def test_a_subprocess_inherits_nothing(store: entrepot.Store) -> None:
    store.get(store.put(np.arange(100_000)))
    code = "import os; print(sum('memfd' in os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
    code += " if os.path.exists(f'/proc/self/fd/{n}')))"
    for close in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", code], close_fds=close, capture_output=True, text=True, timeout=30, check=True
        )
        assert done.stdout == "0\n"
    assert len(store.status()["clients"]) == 1
