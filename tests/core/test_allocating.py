"""``Store.allocating``: NumPy and Arrow make large values in the store's memory; a put seals them without a copy."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from entrepot import _core
from entrepot._client import allocating
from entrepot.errors import InvalidArgument
from suspension import suspend
from value_memory_tries import until_nothing_is_refused

MIB = 1 << 20
ROWS = 500_000  # 4 MB of integers


@pytest.fixture(autouse=True)
def _provisioned(store: entrepot.Store) -> None:
    store.wait_provisioned()  # a store that has no memory yet refuses, rather than hold up arithmetic


def in_store(store: entrepot.Store, make: Callable[[], Any]) -> Any:
    """Make a value in the store."""

    def allocate() -> Any:
        with store.allocating():
            return make()

    return until_nothing_is_refused(allocate)[0]


def put(store: entrepot.Store, value: Any) -> tuple[Any, int]:
    """Put a value; return its ID, and how many buffers were sealed in place."""
    before = _core.value_memory()["sealed"]
    oid = store.put(value)
    return oid, _core.value_memory()["sealed"] - before


def arrow_table() -> pa.Table:
    numbers = pc.call_function("add", [pa.array(range(ROWS)), 1])
    return pa.table({"n": numbers, "text": pc.cast(numbers, pa.large_string())})


MADE: dict[str, tuple[Callable[[], Any], int]] = {
    "numpy arithmetic": (lambda: np.arange(ROWS) * 2, 1),
    "numpy zeros": (lambda: np.zeros(ROWS), 1),
    "numpy random": (lambda: np.random.default_rng(1).random(ROWS), 1),
    "numpy concatenate": (lambda: np.concatenate([np.arange(ROWS), np.arange(ROWS)]), 1),
    "two arrays in a dictionary": (lambda: {"a": np.arange(ROWS), "b": np.ones(ROWS), "c": "text"}, 2),
    "a resized array": (lambda: np.resize(np.arange(ROWS), 2 * ROWS), 1),
    "most of an array": (lambda: np.arange(ROWS)[1000:], 1),
    "pandas, one block": (lambda: pd.DataFrame(np.arange(4 * ROWS).reshape(ROWS, 4), columns=list("abcd")), 1),
    "pandas, filtered": (
        lambda: (f := pd.DataFrame({"a": np.arange(ROWS)}))[f["a"] % 4 != 0].reset_index(drop=True),
        1,
    ),
    "pandas, assigned": (lambda: pd.DataFrame({"a": np.arange(ROWS)}).assign(b=lambda f: f["a"] * 0.5), 2),
    "arrow compute": (arrow_table, 3),
    "arrow sorted": (lambda: pa.table({"n": pa.array(range(ROWS))}).sort_by([("n", "descending")]), 1),
}


@pytest.mark.parametrize("name", MADE)
def test_values_are_sealed_where_they_were_made(store: entrepot.Store, name: str) -> None:
    make, buffers = MADE[name]
    value = in_store(store, make)
    oid, sealed = put(store, value)
    assert sealed >= buffers
    assert_equal(store.get(oid), make())
    del value
    assert_equal(store.get(oid), make())


def assert_equal(stored: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert stored.keys() == expected.keys()
        for key in expected:
            assert_equal(stored[key], expected[key])
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(stored, expected)
    elif isinstance(expected, (pa.Table, pl.DataFrame)):
        assert stored.equals(expected)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(stored, expected)
    else:
        assert stored == expected


def test_polars_and_values_made_outside_are_copied(store: entrepot.Store) -> None:
    before = np.arange(ROWS)
    with store.allocating():
        values = [pl.DataFrame({"n": range(ROWS)}), before]
    values.append(np.arange(ROWS))
    for value in values:
        oid, sealed = put(store, value)
        assert sealed == 0
        assert_equal(store.get(oid), value)


def test_small_values_are_left_alone(store: entrepot.Store) -> None:
    with store.allocating():
        before = _core.value_memory()["allocated"]
        arrays = [np.arange(1000) for _ in range(100)]
        assert _core.value_memory()["allocated"] == before
    assert_equal(store.get(store.put(arrays[7])), arrays[7])


def test_a_value_may_be_changed_after_its_put(store: entrepot.Store) -> None:
    array = in_store(store, lambda: np.arange(ROWS))
    first, sealed = put(store, array)
    assert sealed == 1
    array[::2] = -1
    second, sealed = put(store, array)
    assert sealed == 0
    np.testing.assert_array_equal(store.get(first), np.arange(ROWS))
    np.testing.assert_array_equal(store.get(second), array)
    assert array[0] == -1
    assert array[1] == 1


def test_threads_and_pools_take_part(store: entrepot.Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        arrays = in_store(store, lambda: list(pool.map(lambda number: np.full(ROWS, number), range(8))))
    assert put(store, arrays)[1] == 8

    def make_in_thread() -> list[Any]:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(np.ones(ROWS)))
        thread.start()
        thread.join()
        return made

    assert put(store, in_store(store, make_in_thread))[1] == 1


def test_what_does_not_fit_is_ordinary_memory(store: entrepot.Store) -> None:
    with store.allocating():
        refused = _core.value_memory()["refused"]
        large = np.ones(40_000_000, dtype=np.int64)  # more than the store
        assert _core.value_memory()["refused"] > refused
        assert large.sum() == 40_000_000
        total = sum(np.full(4_000_000, number).sum() for number in range(50))  # more in sum
        assert total == sum(range(50)) * 4_000_000
        kept = [np.full(4_000_000, number) for number in range(20)]  # more than the store at a time
        assert [int(array[-1]) for array in kept] == list(range(20))


def test_an_error_ends_it(store: entrepot.Store) -> None:
    with pytest.raises(ZeroDivisionError), store.allocating():
        raise ZeroDivisionError
    assert put(store, np.arange(ROWS))[1] == 0


def test_start_and_stop(store: entrepot.Store) -> None:
    in_store(store, lambda: np.arange(ROWS))  # from here on, memory is leased
    switch = store.allocating()
    switch.start()
    array = np.arange(ROWS)
    with pytest.raises(InvalidArgument, match="started before"):
        switch.start()
    switch.stop()
    switch.stop()
    assert put(store, array)[1] == 1
    with pytest.raises(InvalidArgument, match="started before"):
        switch.start()


def test_values_outlive_the_store(daemon: Any) -> None:
    with entrepot.connect(daemon.address, scope="tests") as store:
        stored = in_store(store, lambda: np.arange(ROWS))
        assert put(store, stored)[1] == 1
        unput = in_store(store, lambda: np.arange(ROWS) * 3)
        table = in_store(store, lambda: pc.call_function("add", [pa.array(range(ROWS)), 1]))
    np.testing.assert_array_equal(stored, np.arange(ROWS))
    np.testing.assert_array_equal(unput, np.arange(ROWS) * 3)
    assert table[-1].as_py() == ROWS
    unput[:] = 1
    with entrepot.connect(daemon.address, scope="tests") as store:
        np.testing.assert_array_equal(store.get(store.put(unput)), np.ones(ROWS))


def child_sums(arrays: list[Any], results: Any) -> None:
    sums = [int(array.sum()) for array in arrays]
    for array in arrays:
        array[:] = 0
    results.put(sums)


def test_forked_children_inherit_values(store: entrepot.Store) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with store.allocating():
        stored = in_store(store, lambda: np.arange(ROWS))
        oid = store.put(stored)
        unput = in_store(store, lambda: np.ones(ROWS, dtype=np.int64))
        child = context.Process(target=child_sums, args=([stored, unput], results))
        child.start()
        sums = results.get(timeout=60)
        child.join()
        assert sums == [ROWS * (ROWS - 1) // 2, ROWS]
        np.testing.assert_array_equal(stored, np.arange(ROWS))
        assert unput.sum() == ROWS
        np.testing.assert_array_equal(store.get(oid), np.arange(ROWS))
        np.testing.assert_array_equal(store.get(store.put(unput)), np.ones(ROWS))


def test_a_killed_process_leaves_nothing(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    process = spawn(
        """
        import numpy as np, os, signal
        import time
        from entrepot import _core
        store.allocating().start()
        arrays = []
        while _core.value_memory()["allocations"] < 8:
            arrays.append(np.ones(500_000))
            time.sleep(0.02)
        store.put(arrays[-1], name="kept")
        print(store.status()["leased_bytes"], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    output, _ = process.communicate(timeout=60)
    assert int(output) >= 7 * 4_000_000
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases to be returned")
    np.testing.assert_array_equal(store.get(store.resolve("kept")), np.ones(500_000))


def test_libraries_imported_later_take_part(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = python(
        """
        import sys
        from entrepot import _core
        with store.allocating():
            assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
            import pyarrow as pa, pyarrow.compute as pc, numpy as np, time
            end = time.monotonic() + 30
            for number, make in enumerate((lambda: np.arange(500_000), lambda: pc.add(pa.array(range(500_000)), 1))):
                while _core.value_memory()["sealed"] <= number and time.monotonic() < end:
                    store.put(make())  # again if the store was too slow to provide memory
                    time.sleep(0.05)
                assert _core.value_memory()["sealed"] == number + 1, _core.value_memory()
            assert pa.default_memory_pool().backend_name.startswith("entrepot")
            assert type(np.__loader__).__module__ == "_frozen_importlib_external"
        """
    )
    assert done.returncode == 0, done.stderr


def test_an_untested_release_is_left_alone_with_one_warning(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = python(
        """
        import warnings
        import numpy as np, pyarrow as pa, pyarrow.compute as pc
        from entrepot import _core
        np.__version__, pa.__version__ = "99.0.1", "99.0.0"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with store.allocating():
                    array, numbers = np.arange(500_000), pc.add(pa.array(range(500_000)), 1)
                    oid = store.put([array, numbers])
        assert [w.category for w in caught] == [RuntimeWarning, RuntimeWarning], caught
        assert "numpy 2.0 to" in str(caught[0].message) and "99.0.1" in str(caught[0].message)
        assert _core.value_memory()["allocated"] == 0
        assert (store.get(oid)[0] == array).all() and store.get(oid)[1].equals(numbers)
        """
    )
    assert done.returncode == 0, done.stderr


def test_an_untested_release_is_warned_of_if_somebody_wants_to_know(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = python(
        """
        import warnings
        import numpy as np
        np.__version__ = "99.0.1"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with store.allocating(warn=False):
                np.arange(500_000)
            assert caught == []
            with store.allocating(warn=False), store.allocating():
                pass
            assert ["99.0.1" in str(w.message) for w in caught] == [True], caught
        """
    )
    assert done.returncode == 0, done.stderr


def test_other_threads_run_while_a_value_waits_for_memory(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = python(
        """
        import os, signal, threading, time
        import numpy as np
        beats, over = [], threading.Event()
        def beat():
            while not over.is_set():
                beats.append(time.monotonic())
                time.sleep(0.001)
        thread = threading.Thread(target=beat)
        with store.allocating():
            np.arange(500_000)
            thread.start()
            pid = store.status()["pid"]
            os.kill(pid, signal.SIGSTOP)  # the wait for a lease takes 0.1 s
            try:
                began = time.monotonic()
                arrays = [np.empty(16 << 20), np.empty(16 << 20)]
                ended = time.monotonic()
            finally:
                os.kill(pid, signal.SIGCONT)
            over.set()
            thread.join()
        during = sum(began < each < ended for each in beats)
        assert ended - began > 0.05, ended - began
        assert during > 5, (during, ended - began)
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_stopped_daemon_does_not_hold_up_arithmetic(store: entrepot.Store) -> None:
    pid = store.status()["pid"]
    with store.allocating():
        np.arange(ROWS)
        suspend(pid)
        try:
            began = time.monotonic()
            arrays = [np.full(ROWS, number) for number in range(30)]  # more than is leased
            assert time.monotonic() - began < 5  # a refused lease costs 0.2 s, and is not asked for again at once
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [int(array[-1]) for array in store.get(store.put(arrays))] == list(range(30))


def test_memory_is_used_again(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    allocated = _core.value_memory()["allocated"]
    numbers = itertools.count()

    def put_and_delete() -> bool:
        array = np.full(ROWS, number := next(numbers))
        oid = store.put(array)
        assert store.get(oid)[-1] == number
        store.delete(oid)
        return bool(_core.value_memory()["allocated"] >= allocated + 300)  # some are refused on a busy machine

    with store.allocating():
        wait_until(put_and_delete, "300 values made in a store of far less memory")
        assert _core.value_memory()["allocations"] <= 4
    wait_until(lambda: store.status()["leased_bytes"] == 0, "idle leases to be returned")
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the last object to be freed")


def allocated_in_store(make: Callable[[], Any]) -> int:
    """How many buffers are made in the store while a value is made."""
    before = int(_core.value_memory()["allocated"])
    make()
    return int(_core.value_memory()["allocated"]) - before


def test_buffers_that_are_too_large_are_made_in_the_store_when_they_are_cut(store: entrepot.Store) -> None:
    """Arrow's functions for text make room for four bytes a character, and cut it down at their end."""

    def made_too_large() -> Any:
        buffer = pa.allocate_buffer(16 * MIB, resizable=True)
        memoryview(buffer).cast("B")[:5] = b"first"
        buffer.resize(4 * MIB, shrink_to_fit=True)
        assert bytes(memoryview(buffer)[:5]) == b"first"
        return buffer

    with store.allocating():
        assert [allocated_in_store(made_too_large) for _ in range(4)] == [2, 1, 1, 1]
        kept = [made_too_large() for _ in range(3)]
        assert put(store, kept)[1] == 3, "what is left of them is in the store all the same"


def test_a_size_that_is_used_in_full_is_made_in_the_store_again(store: entrepot.Store) -> None:
    def too_large() -> None:
        pa.allocate_buffer(16 * MIB, resizable=True).resize(4 * MIB, shrink_to_fit=True)

    with store.allocating():
        too_large()
        in_full = [allocated_in_store(lambda: pa.allocate_buffer(15 * MIB)) for _ in range(3)]
        assert in_full == [0, 1, 1], "the first was taken for one that would be cut"
        assert allocated_in_store(lambda: pa.allocate_buffer(12 * MIB)) == 1, "another size"


def test_gates_are_those_of_the_documentation() -> None:
    assert tuple(int(part) for part in np.__version__.split(".")[:2]) <= allocating.NUMPY_VERSIONS[1]
    assert tuple(int(part) for part in pa.__version__.split(".")[:2]) <= allocating.PYARROW_VERSIONS[1]
