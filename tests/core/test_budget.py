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


def test_two_hundred_forked_clients_take_little(
    store: entrepot.Store, forked: Callable[..., str], wait_until: Callable[..., None]
) -> None:
    store.put(b"before")
    pid = store.status()["pid"]
    before = pin_table_bytes(pid)
    forked(200)
    wait_until(lambda: len(store.status()["clients"]) >= 201, "the children to be registered")
    assert pin_table_bytes(pid) - before < 4 * MIB


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
    assert abs(memfd_bytes(pid) - status["budget"]["granted_bytes"]) <= MIB // 2


def test_a_million_small_objects_are_counted(make_store: Callable[..., entrepot.Store]) -> None:
    store = make_store("--size", "512MiB", "--warm-bytes", "0", "--spill-path", "none")
    pid = store.status()["pid"]
    put_small(store, 1_000_000)
    status = store.status()
    assert status["objects"] == 1_000_000
    items = status["budget"]["items"]
    assert sum(items.values()) == status["budget"]["granted_bytes"]
    assert sum(items.values()) <= 300 * 1_000_000
    assert memfd_bytes(pid) <= 300 * 1_000_000


@pytest.mark.parametrize("spills", [False, True])
def test_removed_objects_leave_room_for_large_ones(
    make_store: Callable[..., entrepot.Store], tmp_path: Path, spills: bool
) -> None:
    store = make_store("--size", "256MiB", "--spill-path", str(tmp_path / "spill") if spills else "none")
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
    before = time.monotonic()
    with pytest.raises(entrepot.StoreFull, match=r"waiting would not help.*segments .*index "):
        store.put(np.empty(256 * MIB // 8))
    assert time.monotonic() - before < 5


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
