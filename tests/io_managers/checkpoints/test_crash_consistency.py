"""Crash consistency of checkpoints.

No file is renamed into place before its data is synced, no save returns before its directory entries are, and nothing
that was promised is removed before its replacement is durable.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow
import pytest
from entrepot_checkpoints import verify
from entrepot_checkpoints.storage import locks
from entrepot_checkpoints.storage.chunks import chunk_length
from entrepot_checkpoints.storage.directory import StorageDirectory, open_directory
from entrepot_io import connections
from entrepot_io.values import put_value
from entrepot_policy import PolicyRuntime, Task, parse_policy

WATCHDOG_SECONDS = 30.0


class Killed(BaseException):
    """Simulates SIGKILL at a chosen moment; none of our code catches it."""


class Disk:
    """Intercepts system calls below a directory, and tracks which directory entries a crash could lose.

    Attributes:
        steps: operations in order: kind, path below the directory, and what a crash at that moment could lose.
        torn: names given to files whose data was not synced.
    """

    def __init__(self, patched: pytest.MonkeyPatch, top: Path) -> None:
        self.steps: list[tuple[str, str, frozenset[str]]] = []
        self.torn: list[str] = []
        self._top = str(top)
        self._entries: set[str] = set()
        self._dirty: set[int] = set()
        self._lock = threading.Lock()
        write, fsync, rename, mkdir = os.write, os.fsync, os.rename, os.mkdir
        remove, remove_folder = StorageDirectory.remove, StorageDirectory.remove_folder

        def seen_write(file: int, data: Any) -> int:
            with self._lock:
                self._dirty.add(os.fstat(file).st_ino)
            return write(file, data)

        def seen_fsync(file: int) -> None:
            fsync(file)
            path = os.readlink(f"/proc/self/fd/{file}")
            with self._lock:
                self._dirty.discard(os.fstat(file).st_ino)
                self.steps.append(("synced", self._below(path), frozenset()))
                self._entries = {entry for entry in self._entries if os.path.dirname(entry) != path}

        def seen_rename(source: str, target: str) -> None:
            with self._lock:
                target = os.fspath(target)
                self._note("named", target)
                if os.stat(source).st_ino in self._dirty:
                    self.torn.append(self._below(target))
                rename(source, target)
                self._entries.add(target)

        def seen_mkdir(path: str, *arguments: Any, **more: Any) -> None:
            mkdir(path, *arguments, **more)
            with self._lock:
                self._entries.add(os.fspath(path))

        def seen_remove(directory: StorageDirectory, name: str) -> bool:
            with self._lock:
                self._note("removed", f"{directory.url}/{name}")
            return remove(directory, name)

        def seen_remove_folder(directory: StorageDirectory, name: str) -> None:
            with self._lock:
                self._note("removed", f"{directory.url}/{name}")
            remove_folder(directory, name)

        patched.setattr(os, "write", seen_write)
        patched.setattr(os, "fsync", seen_fsync)
        patched.setattr(os, "rename", seen_rename)
        patched.setattr(os, "mkdir", seen_mkdir)
        patched.setattr(StorageDirectory, "remove", seen_remove)
        patched.setattr(StorageDirectory, "remove_folder", seen_remove_folder)

    def losable(self) -> frozenset[str]:
        """Paths that a crash now could lose, not counting the lock files of running saves and prunes."""
        below = {
            self._below(path) for path in self._entries if path.startswith(self._top + "/") and os.path.exists(path)
        }
        return frozenset(path for path in below if "/saving" not in path and "/pruning" not in path)

    def losses_at(self, kind: str, end: str) -> list[frozenset[str]]:
        """Paths that a crash could have lost at each operation of this kind on a path with this ending."""
        return [lost for step, path, lost in self.steps if step == kind and path.endswith(end)]

    def paths_in_order(self, kind: str) -> list[str]:
        """Paths of all operations of this kind, in order, without the lock files of running saves."""
        return [path for step, path, _ in self.steps if step == kind and "/saving/" not in path]

    def _below(self, path: str) -> str:
        return path.removeprefix(self._top + "/")

    def _note(self, kind: str, path: str) -> None:
        self.steps.append((kind, self._below(path), self.losable()))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    return Disk(monkeypatch, tmp_path)


def only_lock_files(names: list[str]) -> bool:
    return all("/saving/" in name or "/pruning/" in name for name in names)


@pytest.mark.parametrize("nbytes", [1000, 1 << 20, 40 << 20])
def test_a_new_checkpoint_is_all_there_when_save_returns(
    store: entrepot.Store, tmp_path: Path, disk: Disk, nbytes: int
) -> None:
    url = tmp_path / "not" / "yet" / "there" / "one"
    store.save(store.put(np.random.default_rng(1).bytes(nbytes)), str(url))
    assert disk.losable() == frozenset()
    assert only_lock_files(disk.torn)
    assert disk.paths_in_order("named")[-1] == "not/yet/there/one/manifest.json"
    (before,) = disk.losses_at("named", "manifest.json")
    assert not any("chunks" in path for path in before)
    assert len(disk.paths_in_order("named")) == 1 + (0 if nbytes == 1000 else -(-nbytes // chunk_length(nbytes)))
    assert verify(str(url)).ok


@pytest.mark.parametrize("collection", [False, True])
def test_tables_are_synced_before_the_manifest_names_them(
    store: entrepot.Store, tmp_path: Path, disk: Disk, collection: bool
) -> None:
    tables = [pyarrow.table({"n": np.arange(10_000) + first}) for first in (0, 1)]
    what: Any
    if collection:
        builder = store.collection("tables")
        for index, table in enumerate(tables):
            builder.put(table, index=index)
        what = builder.seal()
    else:
        what = [store.put(table) for table in tables]
    store.save(what, str(tmp_path / "deep" / "below" / "one"), format="parquet")
    done = [(kind, path) for kind, path, _ in disk.steps]
    manifest = done.index(("named", "deep/below/one/manifest.json"))
    files = list((tmp_path / "deep/below/one").rglob("*.parquet"))
    assert len(files) == 2
    for path in files:
        assert done.index(("synced", str(path.relative_to(tmp_path)))) < manifest
        assert done.index(("synced", str(path.parent.relative_to(tmp_path)))) < manifest
    assert ("synced", "deep") in done
    assert disk.losable() == frozenset()


@pytest.mark.parametrize("incremental", [True, False])
def test_what_was_there_gives_way_only_to_what_is_sure_to_be_there(
    store: entrepot.Store, folder: Any, disk: Disk, incremental: bool
) -> None:
    for seed in (1, 2):
        disk.steps.clear()
        oid = store.put(np.random.default_rng(seed).bytes(20 << 20))
        store.save(oid, folder("one"), incremental=incremental)
    (before,) = disk.losses_at("named", "one/manifest.json")
    assert not any("chunks" in entry for entry in before)
    assert all(lost == frozenset() for lost in disk.losses_at("removed", "")), "the new manifest"
    removed = [path for path in disk.paths_in_order("removed") if "/chunks/" in path]
    assert len(removed) == (0 if incremental else 20 // 4)
    assert disk.losable() == frozenset()
    assert only_lock_files(disk.torn)
    assert verify(folder("one")).ok


@pytest.mark.parametrize("nbytes", [1000, 1 << 20])
def test_what_a_killed_saver_left_unsynced_is_synced_by_the_next(
    store: entrepot.Store, folder: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    real = StorageDirectory.sync_folders

    def killed(directory: StorageDirectory, unsynced: dict[str, None]) -> None:
        if folder("one") in unsynced:
            raise Killed  # at this point the manifest has its final name
        real(directory, unsynced)

    os.makedirs(folder.url)
    oid = store.put(np.random.default_rng(1).bytes(nbytes))
    with monkeypatch.context() as patched:
        patched.setattr(StorageDirectory, "sync_folders", killed)
        with pytest.raises(Killed):
            store.save(oid, folder("one"))
    assert "root/one/manifest.json" in disk.losable()
    assert not store.save(oid, folder("one")).committed
    assert disk.losable() <= {"root"}, "which the test made"


def test_what_is_in_the_catalog_is_there_before_an_older_one_goes(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    text = f"version: 1\ncheckpoint: {{target: '{tmp_path}/kept/{{run}}', rules: [{{keep: 1}}]}}"
    runtime = PolicyRuntime(parse_policy(text, "p.yaml", {}), scope="tests", address=daemon.address)
    try:
        for number in (1, 2):
            disk.steps.clear()
            session = runtime.session(f"run-{number}")
            value = np.random.default_rng(number).bytes(1 << 20)
            with runtime.task(Task("kedro", "pipeline", f"run-{number}", "task")) as task:
                task.write(session, lambda: put_value(session, "value", value))  # noqa: B023
            assert {name for name in disk.losable() if name.startswith("kept")} == set()
            order = [path.split("/") for path in disk.paths_in_order("named") if path.startswith("kept/")]
            kinds = [
                next(name for name in ("chunks", "outputs", "objects", path[-1]) if name in path) for path in order
            ]
            assert kinds == ["chunks", "manifest.json", "outputs", "objects"]
        removed = [lost for path in ("manifest.json", ".json") for lost in disk.losses_at("removed", path)]
        assert len(removed) >= 3, "the checkpoint and its two entries"
        assert all(not any(name.startswith("kept") for name in lost) for lost in removed)
        assert only_lock_files(disk.torn)
    finally:
        connections.close_all()


def test_a_catalog_entry_that_a_killed_process_left_is_synced_by_the_next(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    (tmp_path / "kept").mkdir()
    text = f"version: 1\ncheckpoint: {{target: '{tmp_path}/kept', rules: [{{mode: async, keep: 2}}]}}"
    runtime = PolicyRuntime(parse_policy(text, "p.yaml", {}), scope="tests", address=daemon.address)
    real, calls = StorageDirectory.sync_folders, [0]

    def killed(directory: StorageDirectory, unsynced: dict[str, None]) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise entrepot.StoreUnavailable("the process ends here")
        real(directory, unsynced)

    monkeypatch.setattr(StorageDirectory, "sync_folders", killed)
    try:
        session = runtime.session("run-1")
        with runtime.task(Task("kedro", "pipeline", "run-1", "task")) as task:
            task.write(session, lambda: put_value(session, "value", b"x" * (1 << 20)))
        report = runtime.run_ended(session)
        assert not report.problems, report.problems
        assert calls[0] > 1
        assert {name for name in disk.losable() if name.startswith("kept/")} == set()
        assert sum("/objects/" in path for path in disk.paths_in_order("named")) == 1, "the entry that was there"
    finally:
        connections.close_all()


def test_one_thread_refreshes_all_lock_files(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(locks, "_refresher", locks._LockFileRefresher())
    root = open_directory(folder.url)
    before = {thread for thread in threading.enumerate() if thread.name == "entrepot-saving"}
    waiting = threading.Event()
    with locks.save_lock(root), locks.save_lock(root):
        lock_files = list(Path(folder.url, locks.SAVE_LOCKS).glob("[0-9a-f]*"))
        assert len(lock_files) == 2
        for entry in lock_files:
            os.utime(entry, (0, 0))
        for _ in range(int(WATCHDOG_SECONDS / 0.01)):
            if all(entry.stat().st_mtime > 0 for entry in lock_files):
                break
            waiting.wait(0.01)
        else:
            pytest.fail("the lock files are not refreshed")
        mine = {thread for thread in threading.enumerate() if thread.name == "entrepot-saving"} - before
        assert len(mine) == 1
    assert locks.active_locks(root, locks.SAVE_LOCKS) == []
