"""Total memory use of a store: within its size plus a margin of 2 MiB."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._daemon.launcher import daemon_binary

sys.path.insert(0, str(Path(__file__).parent))

from memfd_usage import memfd_bytes

MIB = 1 << 20


def put_small(store: entrepot.Store, count: int) -> None:
    """Put ``count`` one-byte objects."""
    for _ in range(count // 10_000):
        store.put_many([b"x"] * 10_000)


OWN_MARGIN = 6 * MIB  # beyond the size: 2 MiB for clients, and what a daemon has without any contents


def own_bytes(pid: int) -> int:
    """Memory of a process that is neither shared nor from a file."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def pin_table_bytes(pid: int) -> int:
    """Like ``memfd_bytes``, for pin tables only."""
    return memfd_bytes(pid, "entrepot-pins")


@pytest.fixture
def forked() -> Iterator[Callable[..., str]]:
    """``forked(count, work)``: fork children that live until the test ends; returns the last one's output."""
    children: list[int] = []

    def child(work: Callable[[], str], write: int) -> None:
        try:
            output = work()
        except entrepot.errors.EntrepotError as error:
            output = f"{type(error).__name__}: {error}"
        os.write(write, output.encode() or b"-")
        os.close(write)
        signal.pause()

    def fork(count: int, work: Callable[[], str] = str) -> str:
        output = ""
        for _ in range(count):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    child(work, write)
                finally:
                    os._exit(1)
            children.append(pid)
            os.close(write)
            with os.fdopen(read) as pipe:
                output = pipe.read()
        return output

    yield fork
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def make_store(
    wait_until: Callable[..., None], answers: Callable[[str], bool]
) -> Iterator[Callable[..., entrepot.Store]]:
    """``make_store(*options)``: start a separate store with these options."""
    started: list[subprocess.Popen[bytes]] = []
    folder = Path(tempfile.mkdtemp(prefix="eb-"))
    stores: list[entrepot.Store] = []

    def start(*options: str) -> entrepot.Store:
        address = f"unix://{folder}/s{len(started)}.sock"
        started.append(subprocess.Popen([str(daemon_binary()), "--address", address, *options]))
        wait_until(lambda: answers(address), "the store to listen")
        stores.append(entrepot.connect(address, scope="tests"))
        return stores[-1]

    yield start
    for store in stores:
        store.close()
    for process in started:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_forked_clients_take_little(
    store: entrepot.Store, forked: Callable[..., str], wait_until: Callable[..., None], count: int
) -> None:
    store.put(b"before")
    pid = store.status()["pid"]
    before = pin_table_bytes(pid)
    forked(count)
    wait_until(lambda: len(store.status()["clients"]) >= count + 1, "the children to be registered")
    assert pin_table_bytes(pid) - before < count * MIB // 50


def test_a_table_grows_with_what_is_held_and_outlives_daemon_and_fork(
    store: entrepot.Store, daemon: Any, wait_until: Callable[..., None]
) -> None:
    initial_bytes = pin_table_bytes(store.status()["pid"])
    oids = [store.put(np.full(1 << 13, number)) for number in range(2_000)]
    pinned_values = [store.get(oid) for oid in oids]
    status = store.status()
    assert next(client for client in status["clients"] if client["pid"] == os.getpid())["pins"] == 2_000
    assert initial_bytes < pin_table_bytes(status["pid"]) <= initial_bytes + (16 << 10)

    pid = os.fork()
    if pid == 0:
        good = int(store.get(oids[1_999])[0]) == 1_999 and int(pinned_values[1_500][-1]) == 1_500
        os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0

    os.kill(status["pid"], signal.SIGKILL)  # the next daemon finds the table at its grown size
    wait_until(lambda: store.status()["pid"] != status["pid"], "another daemon to take over")
    assert next(c for c in store.status()["clients"] if c["pid"] == os.getpid())["pins"] == 2_000
    for oid in oids:
        store.delete(oid)
    assert all(int(value[0]) == number for number, value in enumerate(pinned_values))
    assert store.status()["deferred_frees"] == 2_000
    further_values = [store.get(store.put(np.full(1 << 13, 7))) for _ in range(1_500)]
    assert all(int(value[0]) == 7 for value in further_values)


def test_small_objects_keep_a_store_within_its_size(make_store: Callable[..., entrepot.Store]) -> None:
    store = make_store("--size", "64MiB", "--spill-path", "none")
    pid = store.status()["pid"]
    with pytest.raises(entrepot.StoreFull, match=r"64 MiB.*--size"):
        put_small(store, 1_000_000)
    status = store.status()
    assert status["objects"] >= 200_000
    assert memfd_bytes(pid) <= 64 * MIB + 2 * MIB
    assert status["budget"]["granted_bytes"] <= 64 * MIB + 2 * MIB
    in_memfds = status["budget"]["granted_bytes"] - status["budget"]["items"]["heap"]
    assert abs(memfd_bytes(pid) - in_memfds) <= MIB // 2
    assert memfd_bytes(pid) + own_bytes(pid) <= 64 * MIB + OWN_MARGIN


@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_small_objects_are_counted(make_store: Callable[..., entrepot.Store], count: int) -> None:
    store = make_store("--size", "512MiB", "--warm-bytes", "0", "--spill-path", "none")
    pid = store.status()["pid"]
    put_small(store, count)
    status = store.status()
    assert status["objects"] == count
    items = status["budget"]["items"]
    assert sum(items.values()) == status["budget"]["granted_bytes"]
    assert sum(items.values()) - items["heap"] <= 300 * count
    assert own_bytes(pid) <= items["heap"] + OWN_MARGIN
    assert memfd_bytes(pid) <= 300 * count


@pytest.mark.exhaustive
@pytest.mark.parametrize("spills", [False, True])
def test_removed_objects_leave_room_for_large_ones(
    make_store: Callable[..., entrepot.Store], tmp_path: Path, spills: bool
) -> None:
    store = make_store("--size", "256MiB", "--spill-path", str(tmp_path / "spill") if spills else "none")
    pid = store.status()["pid"]
    own_before = own_bytes(pid)
    with entrepot.connect(store.address, scope="tests", session="run") as run, suppress(entrepot.StoreFull):
        put_small(run, 900_000)
    store.remove_session("run")
    assert store.status()["objects"] == 0
    for mebibytes in (200, 180, 150):
        value = np.full(mebibytes * MIB // 8, mebibytes)
        before = time.monotonic()
        oid = store.put(value)
        assert time.monotonic() - before < 5
        assert np.array_equal(store.get(oid), value)
        store.delete(oid)
    heap = store.status()["budget"]["items"]["heap"]
    assert own_bytes(pid) - own_before <= heap + 2 * MIB, "returned to the budget, not to the system"
    before = time.monotonic()
    with pytest.raises(entrepot.StoreFull, match=r"waiting would not help.*segments .*index "):
        store.put(np.empty(256 * MIB // 8))
    assert time.monotonic() - before < 5


def fill_with_names(store: entrepot.Store, number: int) -> None:
    if number == 0:
        store.put(b"named", name="first")
    store.set_name(f"{number:0200}", store.resolve("first"))


def fill_with_sets(store: entrepot.Store, number: int) -> None:
    store._raw().define_set(store._session.number, f"{number:0200}", 0, 0, 0)


def fill_with_sessions(store: entrepot.Store, number: int) -> None:
    store._raw().open_session("tests", f"{number:0200}", None, None)


def fill_with_consumers(store: entrepot.Store, number: int) -> None:
    if number == 0:
        for item in range(100):
            store.put(b"x", id=f"{item:040}", consumers=100_000)
    store._raw().consumed([bytes.fromhex(f"{item:040}") for item in range(100)], f"consumer {number}")


@pytest.mark.parametrize(
    ("fill", "mebibytes", "least"),
    [
        (fill_with_names, 64, 150_000),
        (fill_with_sets, 8, 8_000),
        (fill_with_sessions, 8, 8_000),
        (fill_with_consumers, 8, 800),
    ],
    ids=["names", "sets", "sessions", "consumers"],
)
def test_what_the_daemon_itself_keeps_is_within_the_size_too(
    make_store: Callable[..., entrepot.Store],
    fill: Callable[[entrepot.Store, int], None],
    mebibytes: int,
    least: int,
) -> None:
    """Full of one kind of entry, memfds and the daemon's own memory stay within the size, and the estimate is right."""
    store = make_store("--size", f"{mebibytes}MiB", "--warm-bytes", "0", "--spill-path", "none")
    pid = store.status()["pid"]
    own_before = own_bytes(pid)
    number = 0
    with pytest.raises(entrepot.StoreFull, match="--size"):  # noqa: PT012 - which one it is, is not known
        for number in range(300_000):
            fill(store, number)
    assert number >= least
    heap = store.status()["budget"]["items"]["heap"]
    assert own_bytes(pid) - own_before <= heap + MIB, "estimated too low"
    assert memfd_bytes(pid) + own_bytes(pid) <= mebibytes * MIB + OWN_MARGIN


def test_forks_and_clients_have_limits(
    make_store: Callable[..., entrepot.Store], forked: Callable[..., str], wait_until: Callable[..., None]
) -> None:
    store = make_store("--size", "8MiB", "--spill-path", "none")  # 64 clients, 32 of them forked
    pid = store.status()["pid"]
    forked(40)
    wait_until(lambda: len(store.status()["clients"]) == 33, "the children to be registered")
    assert memfd_bytes(pid) <= 10 * MIB
    # An unregistered child connects when it uses the store, until there are too many clients.
    outputs = [forked(1, lambda: str(store.get(store.put(b"x")))) for _ in range(32)]
    assert outputs[:31] == ["b'x'"] * 31
    assert outputs[31].startswith("StoreFull: ")
    assert "supports 64 clients" in outputs[31]
    assert "larger --size" in outputs[31]
    assert len(store.status()["clients"]) == 64
    assert memfd_bytes(pid) <= 10 * MIB
    assert store.get(store.put(b"whoever is in goes on")) == b"whoever is in goes on"
