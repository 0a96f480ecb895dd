"""Disks that fail under a running store: full from the start, filled by others, damaged, truncated, removed.

A value that does not fit is rejected with the reason, stored values stay readable or are reported as lost, and no
process dies.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

MIB = 1 << 20
VALUE = 4 * MIB
DISK_BYTES = 96 * MIB
FULL_PATTERN = "more cannot be allocated|No space left on device"  # what every refusal says about a disk


@pytest.fixture
def disk(tmp_path: Path, small_disk: Callable[[Path, int], AbstractContextManager[str]]) -> Iterator[Path]:
    """File system of 96 MiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as refused:
        if refused:
            pytest.skip(refused)
        yield tmp_path / "disk"


@pytest.fixture(autouse=True)
def short_waits_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full store is what most of these tests wait for: 30 seconds each by default."""
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 5.0)


def value(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 1 << 62, VALUE // 8)


def put_until_full(store: entrepot.Store, first: int = 0, max_count: int = 100) -> tuple[list[entrepot.ObjectID], str]:
    """Put values until the store reports that it is full; return their IDs and the error message."""
    oids: list[entrepot.ObjectID] = []
    for number in range(first, first + max_count):
        try:
            oids.append(store.put(value(number)))
        except entrepot.StoreFull as error:
            return oids, str(error)
    pytest.fail(f"{max_count} values of {VALUE} bytes were put, and the store was never full")


def assert_all_there(store: entrepot.Store, oids: list[entrepot.ObjectID], first: int = 0) -> None:
    for number, oid in enumerate(oids, first):
        assert np.array_equal(store.get(oid), value(number)), number


def fill(path: Path) -> None:
    """Fill a disk's free space with a file, to the last block.

    Writes ever smaller pieces until nothing more fits, because a store that spills meanwhile outdates any measured
    figure.
    """
    block = os.statvfs(path.parent).f_frsize
    with path.open("wb") as file:
        step = 4 * MIB
        size = 0
        while step >= block:
            try:
                os.posix_fallocate(file.fileno(), size, step)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                step //= 2
            else:
                size += step


@pytest.mark.slow
def test_a_disk_that_is_smaller_than_its_quota(disk: Path, new_daemon: Callable[..., Any]) -> None:
    options = ("--spill-path", str(disk / "spill"), "--spill-quota", "1GiB", "--spill-reserve", "1MiB")
    daemon = new_daemon("64MiB", *options)
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
        oids, message = put_until_full(store)
        assert re.search(FULL_PATTERN, message), message
        assert len(oids) * VALUE > 64 * MIB, "some of them went to disk"
        assert_all_there(store, oids)
        for oid in oids[: len(oids) // 2]:
            store.delete(oid)
        further_oids = [store.put(value(1000 + number)) for number in range(len(oids) // 3)]
        assert_all_there(store, oids[len(oids) // 2 :], len(oids) // 2)
        assert_all_there(store, further_oids, 1000)
        assert store.status()["pid"] == pid


@pytest.mark.slow
def test_a_disk_that_others_fill_and_empty_again(
    disk: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    options = ("--spill-path", str(disk / "spill"), "--spill-quota", "80MiB", "--spill-reserve", "1MiB")
    daemon = new_daemon("64MiB", *options)
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = [store.put(value(number)) for number in range(18)]
        filler = disk / "others"
        fill(filler)
        further_oids, message = put_until_full(store, len(oids))
        assert re.search(FULL_PATTERN, message), message
        assert_all_there(store, oids + further_oids)
        waiting = (oids + further_oids)[-1]
        store.evict(waiting)
        filler.unlink()

        def one_more() -> bool:
            try:
                oid = store.put(value(500))
            except entrepot.StoreFull:
                return False  # a failed disk is not used for half a minute
            return bool(np.array_equal(store.get(oid), value(500)))

        wait_until(one_more, "room on the disk to be used again", 90)
        wait_until(lambda: store.info(waiting).state == "spilled", "the eviction to be tried again")
        assert_all_there(store, oids + further_oids)


def kill_daemon(store: entrepot.Store) -> None:
    os.kill(store.status()["pid"], signal.SIGKILL)


def upgrade(store: entrepot.Store) -> None:
    os.kill(store.status()["keeper_pid"], signal.SIGUSR2)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [kill_daemon, upgrade])
def test_a_daemon_that_is_restarted_on_a_full_disk_has_what_is_there(
    disk: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None], restart: Callable[..., None]
) -> None:
    options = ("--spill-path", str(disk / "spill"), "--spill-quota", "80MiB", "--spill-reserve", "1MiB")
    daemon = new_daemon("64MiB", *options)
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = [store.put(value(number)) for number in range(24)]
        wait_until(lambda: store.status()["spilled_bytes"] > 0, "values that are on disk only")
        fill(disk / "others")
        incarnation = store.status()["incarnation"]
        restart(store)
        wait_until(lambda: store.status()["incarnation"] > incarnation, "the next daemon")
        assert_all_there(store, oids)
        (disk / "others").unlink()
        waiting = oids[-1]
        store.evict(waiting)
        wait_until(lambda: store.info(waiting).state == "spilled", "the disk to be written to again", 90)
        assert_all_there(store, oids)


def test_a_restart_does_not_take_what_the_store_has_written_off_its_default_quota(
    disk: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(disk / "spill"), "--spill-reserve", "1MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        before = store.status()["spill"]["quota_bytes"]
        assert before < DISK_BYTES, "half of what is free"
        oids = put_spilled(daemon, wait_until, store)
        incarnation = store.status()["incarnation"]
        kill_daemon(store)
        wait_until(lambda: store.status()["incarnation"] > incarnation, "the next daemon")
        assert abs(store.status()["spill"]["quota_bytes"] - before) < VALUE // 2  # its lists are on the disk, too
        assert_all_there(store, oids)


def test_a_store_whose_processes_were_killed_is_recovered_from_a_full_disk(
    disk: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    options = ("--spill-path", str(disk / "spill"), "--spill-quota", "64MiB", "--spill-reserve", "1MiB")
    daemon = new_daemon("64MiB", *options)
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = put_spilled(daemon, wait_until, store)
        fill(disk / "others")
        daemon.kill(store)
    daemon.start()
    with entrepot.connect(daemon.address, scope="tests") as store:
        assert_all_there(store, oids)


def test_a_folder_without_files_that_is_full_does_not_keep_a_restarted_daemon_from_the_others(
    disk: Path, tmp_path: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    folders = ("--spill-path", str(tmp_path / "spill"), "--spill-path", str(disk / "spill"))
    daemon = new_daemon("64MiB", *folders, "--spill-quota", "1GiB", "--spill-reserve", "60MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        fill(disk / "others")
        oids = [store.put(value(number)) for number in range(24)]
        wait_until(lambda: store.status()["spilled_bytes"] > 0, "values that are on disk only")
        assert not payload_files(disk / "spill")
        incarnation = store.status()["incarnation"]
        kill_daemon(store)
        wait_until(lambda: store.status()["incarnation"] > incarnation, "the next daemon")
        assert_all_there(store, oids)


def put_spilled(
    daemon: Any, wait_until: Callable[..., None], store: entrepot.Store, count: int = 6
) -> list[entrepot.ObjectID]:
    """Values whose bytes are only on disk."""
    oids = [store.put(value(number)) for number in range(count)]
    store.evict(*oids)
    wait_until(lambda: all(store.info(oid).state == "spilled" for oid in oids), "all values to leave")
    return oids


def payload_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size >= VALUE]


@pytest.mark.parametrize("harm", ["flipped", "cut"])
def test_damage_is_one_objects_loss_and_is_told(
    harm: str, tmp_path: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    folder = tmp_path / "spill"
    daemon = new_daemon("64MiB", "--spill-path", str(folder), "--spill-quota", "512MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        oids = put_spilled(daemon, wait_until, store)
        files = payload_files(folder)
        assert files
        contents = {oid: value(number).tobytes() for number, oid in enumerate(oids)}
        victim = oids[3]
        # Find the victim: these bytes exist only there.
        needle = contents[victim][: 1 << 16]
        for path in files:
            offset = path.read_bytes().find(needle)
            if offset >= 0:
                with path.open("r+b") as file:
                    if harm == "flipped":
                        file.seek(offset + VALUE // 2)
                        byte = file.read(1)
                        file.seek(offset + VALUE // 2)
                        file.write(bytes((byte[0] ^ 0x10,)))
                    else:
                        file.truncate(offset + VALUE // 2)
                break
        else:
            pytest.fail("the victim is in no file")
        # Every time, not only while the failed read is being waited for.
        for _ in range(2):
            with pytest.raises(entrepot.ObjectLost, match="in this store, because its copy on disk is damaged"):
                store.get(victim)
        lost = 0
        for oid in oids:
            try:
                assert store.get(oid).tobytes() == contents[oid]
            except entrepot.ObjectLost:
                lost += 1
        assert lost == 1 if harm == "flipped" else lost >= 1  # values after the cut are lost too
        new_oid = store.put(value(77))
        assert np.array_equal(store.get(new_oid), value(77))


def test_a_folder_that_is_taken_away(
    tmp_path: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    folder = tmp_path / "spill"
    daemon = new_daemon("64MiB", "--spill-path", str(folder), "--spill-quota", "512MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
        oids = put_spilled(daemon, wait_until, store)
        shutil.rmtree(folder)
        assert_all_there(store, oids)  # the files are open until the daemon ends
        further_oids = [store.put(value(100 + number)) for number in range(40)]
        assert folder.stat().st_mode & 0o777 == 0o700
        assert payload_files(folder), "the folder is recreated and used"
        assert store.status()["spill"]["note"] == ""
        assert_all_there(store, further_oids, 100)
        assert_all_there(store, oids)
        assert store.status()["pid"] == pid
        store.evict(*oids)
        wait_until(lambda: all(store.info(oid).state == "spilled" for oid in oids), "all values to leave")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: store.status()["pid"] != pid, "another daemon")
        for oid in oids:
            with pytest.raises(entrepot.ObjectLost, match=r"because its copy on disk is gone \(.*the file is gone"):
                store.get(oid)
        assert_all_there(store, further_oids, 100)


def test_the_limit_of_file_sizes_is_a_full_disk(tmp_path: Path, new_daemon: Callable[..., Any]) -> None:
    options = ("--spill-path", str(tmp_path / "spill"), "--spill-quota", "512MiB")
    daemon = new_daemon("64MiB", *options)
    with entrepot.connect(daemon.address, scope="tests") as store:
        pid = store.status()["pid"]
        oids = [store.put(value(number)) for number in range(4)]
        _, hard_limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (MIB, hard_limit))  # like `ulimit -f`: a spill file is larger
        further_oids, message = put_until_full(store, len(oids))
        assert re.search(r"File too large.*ulimit -f", message), message
        assert_all_there(store, oids + further_oids)
        assert store.status()["pid"] == pid, "SIGXFSZ ended nobody"
