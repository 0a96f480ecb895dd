"""Values made in the store, with faults: memory from everywhere in one put, others who want memory, and SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from entrepot import _core
from entrepot.errors import ObjectNotFound
from suspension import suspend
from value_memory_tries import until_nothing_is_refused

ROWS = 500_000
NBYTES = 8 * ROWS  # of a column
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _provisioned(store: entrepot.Store) -> None:
    store.wait_provisioned()


def made_in_store(store: entrepot.Store, make: Callable[[], Any]) -> Any:
    def allocate() -> Any:
        with store.allocating():
            return make()

    return until_nothing_is_refused(allocate)[0]


def arrow_numbers(add: int) -> pa.Array:
    return pc.call_function("add", [pa.array(np.arange(ROWS)), add])


def test_memory_from_everywhere_is_put_as_one_value(store: entrepot.Store, tmp_path: Path) -> None:
    """Each part is sealed, referenced or copied by itself."""
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(ROWS).tobytes())
    first = store.put({"n": np.arange(ROWS) * 7, "t": pa.table({"n": pa.array(range(ROWS))})})
    stored = store.get(first)
    born, born_sliced, born_before = made_in_store(store, lambda: [np.arange(ROWS) + number for number in range(3)])
    born_arrow = made_in_store(store, lambda: arrow_numbers(5))
    before = store.put(born_before)  # from here on, it is a copy of pages that were sealed
    heap, mapped = np.arange(ROWS) * 3, np.memmap(path, np.int64, mode="r")
    sealed_in_place = {"born": born, "most of it": born_sliced[1000:], "arrow": born_arrow}
    referenced = {
        "stored": stored["n"],
        "its slice": stored["n"][1000:400_000],
        "its rows": pa.table({"n": stored["t"]["n"]}).slice(7),
    }
    copied = {
        "put before": born_before,
        "heap": heap,
        "every second": heap[10_000:][::2],
        "file": mapped,
        "rest of the file": mapped[100_000:],
        "heap in arrow": pa.array(heap),
        "file in arrow": pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(mapped)]),
    }
    value = {"sealed": sealed_in_place, "referenced": [referenced], "copied": copied, "small": [1, "two"]}
    counted = _core.value_memory()["sealed"]
    oid = store.put(value)
    assert _core.value_memory()["sealed"] == counted + len(sealed_in_place)
    info = store.info(oid)
    # Arrow's views of the array and of the file are the same memory, which is stored once.
    copied_bytes = 3 * NBYTES + heap[10_000:][::2].nbytes + mapped[100_000:].nbytes
    assert info.own_bytes == len(sealed_in_place) * NBYTES + copied_bytes
    assert info.referenced_bytes == 2 * NBYTES
    assert [parent["id"] for parent in info.parents] == [str(first)]
    for array in (born, born_sliced, born_arrow.to_numpy()):
        assert is_in_segment(array), "the maker's own memory is that of the store"
    expected = {
        "born": np.arange(ROWS),
        "most of it": np.arange(1001, ROWS + 1),
        "arrow": np.arange(5, ROWS + 5),
        "stored": np.arange(ROWS) * 7,
        "its slice": np.arange(1000, 400_000) * 7,
        "its rows": np.arange(7, ROWS),
        "put before": np.arange(2, ROWS + 2),
        "heap": np.arange(ROWS) * 3,
        "every second": np.arange(10_000, ROWS, 2) * 3,
        "file": np.arange(ROWS),
        "rest of the file": np.arange(100_000, ROWS),
        "heap in arrow": np.arange(ROWS) * 3,
        "file in arrow": np.arange(ROWS),
    }
    born[:], born_before[:], heap[:] = -1, -1, -1
    back = store.get(oid)
    parts = back["sealed"] | back["referenced"][0] | back["copied"]
    assert parts.keys() == expected.keys()
    for name, part in parts.items():
        numbers = part["n"] if isinstance(part, pa.Table) else part
        np.testing.assert_array_equal(np.asarray(numbers), expected[name], name)
    assert back["small"] == [1, "two"]
    np.testing.assert_array_equal(store.get(before), np.arange(2, ROWS + 2))


def is_in_segment(array: Any) -> bool:
    """Whether an array's memory is that of a segment of the store."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            return "memfd:entrepot-segment" in line
    return False


MAKER = """
import signal, threading
import numpy as np
from entrepot import _core

store.wait_provisioned()
store.allocating().start()

def make(count, number):
    while True:  # again while the store refuses, as it may on a busy machine
        refused = _core.value_memory()["refused"]
        array = np.full(count, number)
        if _core.value_memory()["refused"] == refused:
            return array

"""


@pytest.mark.parametrize("is_in_use", [False, True], ids=["idle", "used again and again"])
def test_a_warm_lease_comes_back_when_another_client_wants_memory(
    store: entrepot.Store,
    spawn: Callable[..., subprocess.Popen[str]],
    wait_until: Callable[..., None],
    is_in_use: bool,
) -> None:
    """A process that goes on making values never has a lease that is idle for a second, but gives it up as well."""
    process = spawn(
        MAKER
        + """
for number in range(4):
    make(4_000_000, number)  # 32 MB, freed at once
print("warm", flush=True)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set())).start()
rounds = 0
while not ended.wait(0.01):
    if sys.argv[1] == "True":
        assert np.full(4_000_000, rounds)[-1] == rounds
        rounds += 1
print(rounds, flush=True)
""",
        is_in_use,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "warm\n"
    if is_in_use:
        wait_until(lambda: store.status()["leased_bytes"] >= 32_000_000, "a lease")
    kept = store.put(np.zeros(100 * MIB, np.uint8))
    wanted = np.full(140 * MIB, 7, np.uint8)  # with what is kept, more than the store has beside the lease
    oid = store.put(wanted)
    assert store.status()["capacity_bytes"] - store.status()["used_bytes"] < 32_000_000
    np.testing.assert_array_equal(store.get(oid), wanted)
    assert store.delete(kept)
    process.stdin.write("end\n")
    process.stdin.flush()
    assert (int(process.stdout.readline()) > 0) is is_in_use
    assert process.wait(60) == 0


# What a process does before it prints a line and is killed; the expression of what must be in the store afterwards.
STATES: dict[str, tuple[str, list[int]]] = {
    "a value being written": (
        """
        array = make(500_000, 1)
        array[:1000] = 2
        """,
        [],
    ),
    "a value sealed and held": ("array = make(500_000, 1); store.put(array, name='kept')", [1]),
    "a sealed value written to": (
        "array = make(500_000, 1); store.put(array, name='kept'); array[:] = 9",
        [1],
    ),
    "a value dropped, its lease idle": ("array = make(500_000, 1); del array", []),
    "a sealed value dropped": ("array = make(500_000, 1); store.put(array, name='kept'); del array", [1]),
    "all at once": (
        """
        arrays = [make(500_000, number) for number in range(4)]
        store.put(arrays[1], name="kept")
        store.put(np.arange(500_000), name="other")
        store.delete(store.resolve("other"))
        del arrays[3]
        arrays[2][::2] = 5
        """,
        [1],
    ),
}


def left(store: entrepot.Store) -> dict[str, int]:
    """What the store holds for its clients."""
    status = store.status()
    return {name: status[name] for name in ("objects", "used_bytes", "leased_bytes", "pinned_bytes", "deferred_frees")}


NOTHING = {"objects": 0, "used_bytes": 0, "leased_bytes": 0, "pinned_bytes": 0, "deferred_frees": 0}


def check_what_is_left(store: entrepot.Store, numbers: list[int], wait_until: Callable[..., None]) -> None:
    """Once the killed process is noticed, the store holds arrays with these numbers, and nothing else."""
    wait_until(lambda: len(store.status()["clients"]) == 1, "the process's death to be noticed")
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases to be returned")
    assert is_named(store, "kept") is bool(numbers)
    for number in numbers:
        oid = store.resolve("kept")
        np.testing.assert_array_equal(store.get(oid), np.full(ROWS, number))
        assert NBYTES <= store.status()["used_bytes"] < NBYTES + MIB
        assert store.delete(oid)
    wait_until(lambda: left(store) == NOTHING, "everything to be returned")
    assert store.put(np.zeros(200 * MIB, np.uint8)), "the memory can be used again"


@pytest.mark.parametrize("state", STATES)
def test_a_killed_process_leaves_what_is_sealed(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None], state: str
) -> None:
    code, numbers = STATES[state]
    process = spawn(MAKER + textwrap.dedent(code) + "\nprint('ready', flush=True)\nsys.stdin.readline()\n")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(60)
    check_what_is_left(store, numbers, wait_until)


def is_frozen(pid: int, address: int) -> bool:
    """Whether the memory at an address of a process is copy-on-write by now."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            return line.split()[1].endswith("p")
    raise AssertionError(f"process {pid} has no memory at {address:#x}")


def is_named(store: entrepot.Store, name: str) -> bool:
    """Whether an object has this name."""
    try:
        store.resolve(name)
    except ObjectNotFound:
        return False
    return True


@pytest.mark.parametrize("is_daemon_killed", [False, True], ids=["the daemon lives", "the daemon dies, too"])
@pytest.mark.usefixtures("_ended")
def test_a_process_killed_in_the_middle_of_a_put(
    store: entrepot.Store,
    spawn: Callable[..., subprocess.Popen[str]],
    wait_until: Callable[..., None],
    is_daemon_killed: bool,
) -> None:
    """The put is at the daemon, which is stopped. Afterwards, the object is there as a whole, or not at all."""
    process = spawn(
        MAKER
        + """
array = make(500_000, 1)
print(array.__array_interface__["data"][0], flush=True)
sys.stdin.readline()
store.put(array, name="kept")
"""
    )
    assert process.stdout is not None
    assert process.stdin is not None
    address = int(process.stdout.readline())
    assert not is_frozen(process.pid, address)
    daemon = store.status()["pid"]
    suspend(daemon)
    try:
        process.stdin.write("put\n")
        process.stdin.flush()
        wait_until(lambda: is_frozen(process.pid, address), "the put to seal the value")
        process.kill()
        process.wait(60)
        if is_daemon_killed:
            os.kill(daemon, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGCONT)
    wait_until(lambda: len(store.status()["clients"]) == 1, "the process's death to be noticed")
    check_what_is_left(store, [1] if is_named(store, "kept") else [], wait_until)


def test_a_forked_child_outlives_its_killed_parent(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    process = spawn(
        MAKER
        + """
sealed, unput = make(500_000, 1), make(500_000, 2)
store.put(sealed, name="kept")
child = os.fork()
if child == 0:
    for line in sys.stdin:
        print(int(sealed.sum()), int(unput.sum()), flush=True)
        if line == "make\\n":
            store.put(make(500_000, 3), name="of the child")
            print("made", flush=True)
    os._exit(0)
print(child, flush=True)
while True:
    signal.pause()
"""
    )
    assert process.stdout is not None
    assert process.stdin is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait(60)

    def ask(line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()

    sums = f"{ROWS} {2 * ROWS}\n"
    assert ask("sum\n") == sums
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the parent's leases to be returned")
    wait_until(lambda: len(store.status()["clients"]) == 2, "the parent's registration to go")
    kept = store.resolve("kept")
    np.testing.assert_array_equal(store.get(kept), np.full(ROWS, 1))
    assert store.delete(kept)
    other = store.put(np.zeros(150 * MIB, np.uint8))  # does not lie where the child still reads
    assert ask("make\n") == sums
    assert process.stdout.readline() == "made\n"
    np.testing.assert_array_equal(store.get(store.resolve("of the child")), np.full(ROWS, 3))
    assert store.status()["deferred_frees"] == 1, "the child still reads what was deleted"
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the child's pin to go")
    for name in (store.resolve("of the child"), other):
        assert store.delete(name)
    wait_until(lambda: left(store) == NOTHING, "everything to be returned")
