"""A store in a control group with little memory: it stays within the limit, and no process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot._daemon.launcher import daemon_binary

LIMIT = 300 << 20
MOUNT = Path("/sys/fs/cgroup")


def own_group(controller: str) -> str:
    """Path of this process's group below the mount of a controller (version 1), or of version 2 (``""``)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller:
            return path.lstrip("/")
    return ""


def candidate_parents() -> Iterator[tuple[Path, str]]:
    """Candidate parent groups, each with the file that limits its memory."""
    first = MOUNT / "memory"
    yield first / own_group("memory"), "memory.limit_in_bytes"
    yield first, "memory.limit_in_bytes"
    yield MOUNT / own_group(""), "memory.max"
    yield MOUNT, "memory.max"


@pytest.fixture
def group() -> Iterator[Path]:
    """Control group of 300 MiB."""
    failures = []
    for parent, limit in candidate_parents():
        path = parent / f"entrepot-test-{os.getpid()}"
        try:
            path.mkdir()
        except OSError as error:
            failures.append(str(error))
            continue
        try:
            (path / limit).write_text(str(LIMIT))
        except OSError as error:
            failures.append(str(error))
            path.rmdir()
            continue
        yield path
        for pid in (path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        end = time.monotonic() + 20
        while True:
            try:
                path.rmdir()
                return
            except OSError:
                assert time.monotonic() < end, f"{path} is still in use"
                time.sleep(0.02)
    pytest.skip(f"no control group can be made here: {'; '.join(failures)}")


@pytest.fixture
def in_group(group: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """``in_group(*options)``: start an ``entrepotd`` in the group; returns it and its address."""
    started: list[subprocess.Popen[str]] = []
    folder = Path(tempfile.mkdtemp(prefix="eg-"))

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        address = f"unix://{folder}/s{len(started)}.sock"
        command = [str(daemon_binary()), "--address", address, *options]
        enter = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
        process = subprocess.Popen(["/bin/sh", "-c", enter, "sh", *command], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process, address

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def connected(wait_until: Callable[..., None], answers: Callable[[str], bool]) -> Callable[..., entrepot.Store]:
    """``connected(process, address)``: connect to a store that is just starting."""

    def connect(process: subprocess.Popen[str], address: str) -> entrepot.Store:
        wait_until(lambda: answers(address) or process.poll() is not None, "the store to listen")
        assert process.poll() is None, process.communicate()[1]
        return entrepot.connect(address, scope="tests")

    return connect


def test_a_size_above_the_group_limit_is_refused_at_start(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]],
) -> None:
    process, _ = in_group("--size", "1GiB", "--spill-path", "none")
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "1 GiB exceeds the available memory" in stderr
    assert "300 MiB" in stderr


def test_the_default_size_fits_and_what_is_refused_is_told(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]],
    connected: Callable[..., entrepot.Store],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 5.0)
    process, address = in_group("--spill-path", "none")
    with connected(process, address) as store:
        capacity = store.status()["capacity_bytes"]
        assert 64 << 20 <= capacity < LIMIT
        values = []
        with pytest.raises(entrepot.StoreFull, match="capacity"):  # noqa: PT012 - which put it is, is not known
            for number in range(400):
                values.append(store.put(np.full(1 << 17, number)))
        assert len(values) >= (capacity >> 20) // 2
        for number, oid in enumerate(values):
            assert int(store.get(oid)[0]) == number
        assert process.poll() is None
        store.delete(values.pop())
        store.put(np.full(1 << 16, 7))


def test_three_times_the_group_goes_through_it(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]],
    connected: Callable[..., entrepot.Store],
    tmp_path: Path,
) -> None:
    disk = ("--spill-path", str(tmp_path / "disk"), "--spill-quota", "1GiB", "--spill-reserve", "64MiB")
    process, address = in_group("--size", "128MiB", *disk)
    with connected(process, address) as store:
        pids = {store.status()["pid"], store.status()["keeper_pid"]}
        oids = [store.put(np.full(1 << 20, number)) for number in range(112)]  # 8 MiB each
        for number, oid in enumerate(oids):
            value = store.get(oid)
            assert int(value[0]) == int(value[-1]) == number
        assert {store.status()["pid"], store.status()["keeper_pid"]} == pids, "nobody was killed"


def test_half_the_group_full_of_small_objects_is_no_more_than_that(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]], connected: Callable[..., entrepot.Store]
) -> None:
    process, address = in_group("--size", "150MiB", "--spill-path", "none")
    with connected(process, address) as store:
        pids = {store.status()["pid"], store.status()["keeper_pid"]}
        oids: list[entrepot.ObjectID] = []

        def fill() -> None:
            while len(oids) < 1_200_000:
                oids.extend(store.put_many([b"x"] * 10_000))

        with pytest.raises(entrepot.StoreFull, match="--size"):
            fill()
        assert len(oids) > 300_000
        assert bytes(store.get(oids[-1])) == bytes(store.get(oids[0])) == b"x"
        store.delete(oids[0])
        assert {store.status()["pid"], store.status()["keeper_pid"]} == pids, "nobody was killed"


@pytest.mark.exhaustive
def test_half_the_group_full_of_names_is_no_more_than_that(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]], connected: Callable[..., entrepot.Store]
) -> None:
    process, address = in_group("--size", "150MiB", "--warm-bytes", "0", "--spill-path", "none")
    with connected(process, address) as store:
        pids = {store.status()["pid"], store.status()["keeper_pid"]}
        oid = store.put(b"x")
        number = 0
        with pytest.raises(entrepot.StoreFull, match="--size"):  # noqa: PT012 - which name it is, is not known
            for number in range(600_000):
                store.set_name(f"{number:0200}", oid)
        assert number > 300_000
        assert store.resolve(f"{0:0200}") == store.resolve(f"{number - 1:0200}") == oid
        store.unset_name(f"{0:0200}")
        assert {store.status()["pid"], store.status()["keeper_pid"]} == pids, "nobody was killed"


def test_memory_that_is_only_kept_goes_back_once_the_group_is_nearly_full(
    in_group: Callable[..., tuple[subprocess.Popen[str], str]],
    connected: Callable[..., entrepot.Store],
    wait_until: Callable[..., None],
) -> None:
    """With the group's limit in sight, a store does not keep what it has used for its next puts."""
    process, address = in_group(
        "--size", "200MiB", "--warm-bytes", "0", "--give-back-after", "1h", "--spill-path", "none"
    )
    with connected(process, address) as store:
        kept = store.put(np.zeros(30 << 20, np.uint8))
        store.delete(store.put(np.zeros(60 << 20, np.uint8)))
        wait_until(lambda: store.status()["kept_target_bytes"] == 0, "the memory to go back")
        status = store.status()
        assert status["warm_bytes"] < 60 << 20
        assert np.asarray(store.get(kept)).nbytes == 30 << 20
