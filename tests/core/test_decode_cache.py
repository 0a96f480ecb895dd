"""A file is decoded by one process while the others wait, and never served with another content than it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entrepot.errors import Timeout
from spawned_programs import read_line, send_line
from suspension import suspend

sys.path.insert(0, str(Path(__file__).parent))

import counted_files

MIB = 1 << 20
ROWS = 100_000

READER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import counted_files
counted_files.register()
import pyarrow.parquet
from entrepot._readers.decode_lock import DecodeLocks

acquire = DecodeLocks.try_acquire

def record_and_acquire(locks, oid):
    lock = acquire(locks, oid)
    with open(os.environ["COUNTED_LOG"] + ".asked", "a") as asked:
        print(os.getpid(), file=asked)
    return lock

DecodeLocks.try_acquire = record_and_acquire
print("ready", flush=True)
sys.stdin.readline()
try:
    table = store.read_parquet("counted://" + sys.argv[1], timeout=60)
    print("sum", table["a"].to_numpy().sum(), flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted_files.register()
    monkeypatch.setenv("COUNTED_LOG", str(tmp_path / "log"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "orders.parquet", 1)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody decodes before this file exists."""
    path = tmp_path / "gate"
    monkeypatch.setenv("COUNTED_GATE", str(path))
    return path


@pytest.fixture
def decoding(
    spawn: Any, file: Path, gate: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> subprocess.Popen[str]:
    """A process that is decoding the file, and waits at the gate."""
    (process,) = started(spawn, file, 1)
    send_line(process)
    wait_until(lambda: decoders(tmp_path) == {process.pid}, "the process to decode")
    return process


def write(path: Path, factor: int, rows: int = ROWS) -> Path:
    """Write a file, and replace what was at the path at once."""
    fresh = path.with_suffix(".fresh")
    pq.write_table(pa.table({"a": np.arange(rows) * factor}), fresh)
    fresh.replace(path)
    return path


def total(factor: int, rows: int = ROWS) -> int:
    return factor * rows * (rows - 1) // 2


def entries(store: entrepot.Store) -> list[Any]:
    with entrepot.connect(store.address, scope="entrepot", session="entrepot.files") as cache:
        return cache.list()


def present(store: entrepot.Store) -> list[str]:
    """The names of the files whose tables are there."""
    return sorted(entry.names[0].rpartition(" ")[2] for entry in entries(store))


def decoders(tmp_path: Path) -> set[int]:
    return set(counted_files.openings(tmp_path / "log"))


def started(spawn: Callable[..., subprocess.Popen[str]], file: Path, count: int) -> list[subprocess.Popen[str]]:
    """Processes that are ready to read the file."""
    processes = [spawn(READER, file) for _ in range(count)]
    assert [read_line(process) for process in processes] == ["ready"] * count
    return processes


def test_processes_that_ask_together_decode_once(
    spawn: Any, store: entrepot.Store, file: Path, gate: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    processes = started(spawn, file, 5)
    for process in processes:
        send_line(process)
    wait_until(lambda: len(set(counted_files.openings(tmp_path / "log.asked"))) == 5, "all to ask for the lock")
    gate.touch()  # nobody decodes before
    assert [read_line(process) for process in processes] == [f"sum {total(1)}"] * 5
    assert len(decoders(tmp_path)) == 1
    (entry,) = entries(store)
    assert entry.dead
    assert store.info(entry.id).pins == 5, "all of them read the same memory"


def test_threads_that_ask_together_decode_once(store: entrepot.Store, file: Path, tmp_path: Path) -> None:
    store.read_parquet(f"counted://{file}")
    once = len(counted_files.openings(tmp_path / "log"))
    write(file, 2)
    barrier, sums = threading.Barrier(6), []

    def read() -> None:
        barrier.wait(60)
        sums.append(store.read_parquet(f"counted://{file}")["a"].to_numpy().sum())

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sums == [total(2)] * 6
    assert len(counted_files.openings(tmp_path / "log")) == 2 * once


def test_another_takes_over_from_a_killed_decoder(
    spawn: Any, store: entrepot.Store, file: Path, gate: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    first, second, third = started(spawn, file, 3)
    send_line(first)
    wait_until(lambda: decoders(tmp_path) == {first.pid}, "the first to decode")
    send_line(second)
    send_line(third)
    first.kill()
    wait_until(lambda: len(decoders(tmp_path)) == 2, "another to decode")
    gate.touch()
    assert read_line(second) == read_line(third) == f"sum {total(1)}"
    assert len(decoders(tmp_path)) == 2
    assert len(entries(store)) == 1


def test_a_forked_child_does_not_keep_its_parents_lock(
    spawn: Any, store: entrepot.Store, file: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    code = """
import os, sys, time
from entrepot._readers.decode_lock import DecodeLocks
lock = DecodeLocks(store.address).try_acquire(store.derive("x"))
assert lock is not None
child = os.fork()
if child == 0:
    time.sleep(120)
    os._exit(0)
print(child, flush=True)
time.sleep(120)
"""
    from entrepot._readers.decode_lock import DecodeLocks

    locks, oid = DecodeLocks(store.address), store.derive("x")
    holder = spawn(code)
    child = int(read_line(holder))
    try:
        assert locks.holder_of(oid) == holder.pid
        assert locks.try_acquire(oid) is None
        holder.kill()

        def acquired() -> bool:
            lock = locks.try_acquire(oid)
            if lock is None:
                return False
            with lock:
                return locks.try_acquire(oid) is None  # held by this thread

        wait_until(acquired, "the lock")
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_waiting_for_a_stopped_decoder_ends_and_names_it(
    decoding: subprocess.Popen[str], store: entrepot.Store, file: Path, gate: Path, tmp_path: Path
) -> None:
    suspend(decoding.pid)
    try:
        for timeout in (0, 0.2):
            with pytest.raises(Timeout, match=rf"orders.parquet is still being decoded, by process {decoding.pid},"):
                store.read_parquet(f"counted://{file}", timeout=timeout)
    finally:
        os.kill(decoding.pid, signal.SIGCONT)
    gate.touch()
    assert store.read_parquet(f"counted://{file}")["a"].to_numpy().sum() == total(1)
    assert read_line(decoding) == f"sum {total(1)}"
    assert decoders(tmp_path) == {decoding.pid}


def test_an_error_reaches_all_and_leaves_nothing(
    spawn: Any, store: entrepot.Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:1000] + b"\0" * 50_000 + content[51_000:])  # the footer is intact
    processes = started(spawn, file, 3)
    for process in processes:
        send_line(process)
    outcomes = [read_line(process) for process in processes]
    assert len(set(outcomes)) == 1
    assert outcomes[0] in ("ArrowInvalid", "OSError", "ArrowException")
    assert entries(store) == []
    write(file, 3)
    assert store.read_parquet(f"counted://{file}")["a"].to_numpy().sum() == total(3)


def test_a_file_replaced_meanwhile_is_decoded_again(
    decoding: subprocess.Popen[str], store: entrepot.Store, file: Path, gate: Path, tmp_path: Path
) -> None:
    write(file, 5)
    gate.touch()
    assert read_line(decoding) == f"sum {total(5)}"
    assert store.read_parquet(f"counted://{file}")["a"].to_numpy().sum() == total(5)
    assert decoders(tmp_path) == {decoding.pid}
    assert len(entries(store)) == 1


def test_a_file_rewritten_in_place_is_never_served_from_before(store: entrepot.Store, tmp_path: Path) -> None:
    """As fast as possible, and of equal size: only the kernel's timestamps differ, by a tick of its clock at least."""
    path = tmp_path / "count.csv"
    for number in range(100, 160):
        with path.open("w") as file:
            file.write(f"a\n{number}\n")
        assert store.read_csv(path)["a"].to_pylist() == [number]
    assert len(entries(store)) == 1


def test_a_file_that_was_just_changed_is_left_to_rest(store: entrepot.Store, tmp_path: Path) -> None:
    """Otherwise another change within the same tick of the clock that dates it would go unnoticed."""
    path = tmp_path / "count.csv"
    path.write_text("a\n1\n")
    store.read_csv(path)
    assert time.time() >= path.stat().st_ctime + 0.02
    written = int(time.time())
    os.utime(path, (written, written))  # all that counted:// knows; such times are those of HTTP, say
    store.read_csv(f"counted://{path}")
    assert time.time() >= written + 2


def test_a_file_that_never_rests_is_given_up(
    store: entrepot.Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTED_TOUCH", "1")
    with pytest.raises(Timeout, match=r"orders.parquet was changed during each of 5 attempts"):
        store.read_parquet(f"counted://{file}")
    assert entries(store) == []


def test_former_content_is_deleted_and_stays_readable(store: entrepot.Store, file: Path) -> None:
    former = store.read_parquet(file)
    store.read_parquet(file, columns=["a"])
    assert len(entries(store)) == 2
    write(file, 7)
    assert store.read_parquet(file)["a"].to_numpy().sum() == total(7)
    assert len(entries(store)) == 1
    assert former["a"].to_numpy().sum() == total(1)


def test_entries_go_first_when_memory_is_short(new_daemon: Callable[..., Any], tmp_path: Path) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")
    paths = [write(tmp_path / f"{number}.parquet", number, 2 * MIB) for number in (1, 2)]
    with entrepot.connect(daemon.address, scope="tests") as store:
        kept = store.read_parquet(f"counted://{paths[1]}")
        store.read_parquet(f"counted://{paths[0]}")  # more recent, but not in use
        opened = len(counted_files.openings(tmp_path / "log"))
        oids: list[entrepot.ObjectID] = []
        while len(present(store)) == 2:
            assert [store.info(oid).state for oid in oids] == ["sealed"] * len(oids), "an entry goes before any value"
            oids.append(store.put(np.full(MIB // 2, len(oids))))  # 4 MiB
            assert len(oids) < 12
        assert present(store) == ["2.parquet"], "what is in use stays"
        assert store.status()["drops"] == 0, "entries are deleted, not marked as dropped"
        assert kept["a"].to_numpy().sum() == total(2, 2 * MIB)
        del kept
        assert store.read_parquet(f"counted://{paths[1]}")["a"].to_numpy().sum() == total(2, 2 * MIB)
        assert len(counted_files.openings(tmp_path / "log")) == opened
        for oid in oids:
            store.delete(oid)
        assert store.read_parquet(f"counted://{paths[0]}")["a"].to_numpy().sum() == total(1, 2 * MIB)
        assert len(counted_files.openings(tmp_path / "log")) > opened
        assert all(entry.dead for entry in entries(store)), "what was decoded again is the first to go again"


def test_entries_make_room_where_nothing_can_be_spilled(new_daemon: Callable[..., Any], tmp_path: Path) -> None:
    with entrepot.connect(new_daemon("64MiB").address, scope="tests") as store:
        for number in range(12):  # 16 MiB each
            path = write(tmp_path / f"{number}.parquet", number, 2 * MIB)
            assert store.read_parquet(path)["a"].to_numpy().sum() == total(number, 2 * MIB)
        assert len(entries(store)) < 5


def test_an_entry_whose_decoder_died_before_marking_it_is_marked_by_its_reader(
    python: Callable[..., Any], store: entrepot.Store, file: Path
) -> None:
    code = """
import os, signal, sys
from entrepot._readers.decode_cache import DecodeCache
DecodeCache._mark = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.read_parquet(sys.argv[1])
"""
    assert python(code, file).returncode == -signal.SIGKILL
    (entry,) = entries(store)
    assert not entry.dead
    store.read_parquet(file)
    (entry,) = entries(store)
    assert entry.dead


def test_readers_survive_the_store(daemon: Any, file: Path) -> None:
    store = entrepot.connect(daemon.address)
    before = store.read_parquet(file)
    pid, keeper = (store.status()[name] for name in ("pid", "keeper_pid"))
    suspend(keeper)
    os.kill(pid, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    daemon.was_killed(pid)
    daemon.start()
    for _ in range(2):  # from the dead store's memory, which is still right, and decoded into the next store
        assert store.read_parquet(file).equals(before)
        store.status()
    assert present(store) == ["orders.parquet"]
    store.close()


def test_the_caches_session_ends_after_its_last_user(store: entrepot.Store, file: Path) -> None:
    store.read_parquet(file)
    with entrepot.connect(store.address, scope="entrepot") as cache:
        (session,) = [info for info in cache.sessions() if info.session == "entrepot.files"]
        assert session.ttl_seconds == 3600
        cache.session("entrepot.files", ttl=60).close()
        with entrepot.connect(store.address) as another:
            another.read_parquet(file)
        (session,) = [info for info in cache.sessions() if info.session == "entrepot.files"]
        assert session.ttl_seconds == 60, "a user's setting is kept"


def test_the_cache_can_be_cleared_while_it_is_used(store: entrepot.Store, file: Path, tmp_path: Path) -> None:
    first = store.read_parquet(f"counted://{file}")
    opened = len(counted_files.openings(tmp_path / "log"))
    with entrepot.connect(store.address, scope="entrepot") as cache:
        cache.remove_session("entrepot.files")
    for _ in range(2):
        assert store.read_parquet(f"counted://{file}").equals(first)
        assert len(counted_files.openings(tmp_path / "log")) == 2 * opened
    assert present(store) == ["orders.parquet"]


def test_the_control_counts_without_the_cache(file: Path, tmp_path: Path) -> None:
    """Each process that reads the file itself is counted.

    It reads on one thread: on a busy machine, pyarrow's threads may still hold the Python file when the interpreter
    exits, and then they abort the process (17 of 40 runs beside three busy loops, 0 of 40 on one thread).
    """
    code = "import sys, counted_files, fsspec, pyarrow.parquet as pq; counted_files.register()\n"
    code += "pq.read_table(sys.argv[1], filesystem=fsspec.filesystem('counted'), pre_buffer=False, use_threads=False)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, file], cwd=Path(__file__).parent, check=True, timeout=60)
    assert len(decoders(tmp_path)) == 2
