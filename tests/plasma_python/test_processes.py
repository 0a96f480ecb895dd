"""Forks, threads, signals, and a daemon that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import plasma


def _in_child(work: Any) -> int:
    """Run ``work`` in a forked child; return the child's exit code, 0 if it returned true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_reads_and_writes(client: plasma.PlasmaClient) -> None:
    oid, theirs = client.put(np.arange(100_000)), plasma.ObjectID.from_random()
    value = client.get(oid)

    def work() -> bool:
        client.put("from the child", theirs)
        client.evict(0)
        client.delete([oid])
        return bool(value.sum() == sum(range(100_000)) and client.get(theirs) == "from the child")

    assert _in_child(work) == 0
    assert client.get(theirs) == "from the child"
    assert value.sum() == sum(range(100_000))
    assert not client.contains(oid)


def test_only_the_parent_seals_what_it_creates(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    np.frombuffer(client.create(oid, 100_000), dtype="uint8")[:] = 3

    def work() -> bool:
        try:
            client.seal(oid)
        except entrepot.NotSealed:
            return not client.contains(oid)
        return False

    assert _in_child(work) == 0
    client.seal(oid)
    assert client.get_buffers([oid])[0].to_pybytes() == b"\3" * 100_000


def test_a_child_that_is_forked_while_another_thread_works(client: plasma.PlasmaClient) -> None:
    client.subscribe()
    done = threading.Event()

    def evict() -> None:
        while not done.is_set():
            client.put(1)
            client.evict(1)

    worker = threading.Thread(target=evict)
    worker.start()
    try:
        for _ in range(20):
            assert _in_child(lambda: client.put(7) != client.put(8) and client.evict(0) == 0) == 0
    finally:
        done.set()
        worker.join(30)


def test_threads_share_a_client(client: plasma.PlasmaClient) -> None:
    failures: list[BaseException] = []
    shared = [plasma.ObjectID.from_random() for _ in range(50)]
    created: list[plasma.ObjectID] = []

    def work(number: int) -> None:
        try:
            for oid in shared:
                try:
                    client.create(oid, 100)
                    client.seal(oid)
                    created.append(oid)
                except plasma.PlasmaObjectExists:
                    pass
                value = client.put(np.full(5000, number))
                assert (client.get(value) == number).all()
                client.delete([value])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert set(created) == set(shared)
    assert len(created) == len(shared)  # each was created by exactly one thread


def test_control_c_ends_a_wait(start: Any, client: plasma.PlasmaClient) -> None:
    waiting = start(
        """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
        try:
            print("waiting", flush=True)
            client.get(ids)
        except KeyboardInterrupt:
            print("interrupted", client.get(client.put(5)), flush=True)
        """,
        oid := plasma.ObjectID.from_random(),
    )
    assert waiting.stdout.readline() == "waiting\n"
    waiting.send_signal(signal.SIGINT)
    assert waiting.stdout.readline() == "interrupted 5\n"
    client.put(1, oid)


@pytest.mark.usefixtures("client")
def test_a_killed_client_leaves_nothing(start: Any, socket_name: str, store: Any, wait_until: Any) -> None:
    other = start("buffer = client.create(ids[0], 50 << 20); print(1, flush=True); input()", plasma.ObjectID(bytes(20)))
    assert other.stdout.readline() == "1\n"
    assert store.status()["unsealed_bytes"] >= 50 << 20
    other.kill()
    other.wait(30)
    wait_until(lambda: store.status()["unsealed_bytes"] < 50 << 20, "the memory to come back")
    client = plasma.connect(socket_name)
    client.create(plasma.ObjectID(bytes(20)), 50 << 20)
    client.disconnect()


def test_a_killed_daemon_loses_nothing(client: plasma.PlasmaClient, store: Any) -> None:
    sealed = [client.put(np.full(10_000, index)) for index in range(20)]
    small, unsealed = client.put_raw_buffer(b"x", metadata=b"m"), plasma.ObjectID.from_random()
    held = client.get(sealed[0])
    np.frombuffer(client.create(unsealed, 100_000), dtype="uint8")[:] = 4
    client.subscribe()
    pid = store.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    client.seal(unsealed)
    assert time.monotonic() - began < 30
    assert store.status()["pid"] != pid
    assert client.get_buffers([unsealed])[0].to_pybytes() == b"\4" * 100_000
    for index, oid in enumerate(sealed):
        assert (client.get(oid) == index).all()
    assert client.get_buffers([small], with_meta=True)[0][0] == b"m"
    assert (held == 0).all()
    assert client.list()[sealed[1]]["data_size"] > 80_000
    reported = {client.get_next_notification()[0] for _ in range(22)}
    assert reported == {*sealed, small, unsealed}


def test_after_disconnect_calls_are_refused(socket_name: str) -> None:
    client = plasma.connect(socket_name)
    oid = client.put(1)
    client.disconnect()
    client.disconnect()
    for call in (
        lambda: client.get(oid),
        lambda: client.put(1),
        lambda: client.contains(oid),
        lambda: client.create(oid, 1),
        lambda: client.evict(1),
        client.list,
        client.subscribe,
    ):
        with pytest.raises(entrepot.StoreUnavailable, match="connect again"):
            call()


def test_connect_waits_for_a_store_that_is_starting(socket_folder: Any) -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match=r"none\.sock"):
        plasma.connect(f"{socket_folder}/none.sock", num_retries=3)
    assert time.monotonic() - began >= 0.2
    command = [sys.executable, "-c", "import sys; from entrepot import plasma; plasma.connect(sys.argv[1]).put(1)"]
    path = f"{socket_folder}/late.sock"
    waiting = subprocess.Popen([*command, path])
    daemon = subprocess.Popen(
        [sys.executable, "-m", "entrepot.daemon_main", "--address", f"unix://{path}", "--size", "64MiB"]
    )
    try:
        assert waiting.wait(60) == 0
    finally:
        daemon.terminate()
        assert daemon.wait(60) == 0


def test_a_relative_path_and_an_address_name_the_same_store(
    socket_name: str, client: plasma.PlasmaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = client.put(1)
    folder, name = os.path.split(socket_name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{socket_name}")
    for place in (name, f"unix://{socket_name}", ""):
        other = plasma.connect(place)
        assert other.get(oid) == 1
        other.disconnect()


def test_a_store_for_a_block() -> None:
    with plasma.start_plasma_store(plasma_store_memory=100_000_000) as (name, process):
        client = plasma.connect(name)
        assert client.store_capacity() == 100_000_000
        assert client.get(client.put([1])) == [1]
        assert process.poll() is None
    assert process.returncode == 0
    assert not os.path.exists(os.path.dirname(name))
    with plasma.start_plasma_store(1000) as (name, process):
        assert plasma.connect(name).store_capacity() == 8 << 20  # the smallest there is
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_store_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="valgrind"), plasma.start_plasma_store(10**8, use_valgrind=True):
        pass
    monkeypatch.setenv("ENTREPOT_DAEMON_BINARY", "/bin/false")
    with pytest.raises(entrepot.StoreUnavailable, match="exited with code 1"), plasma.start_plasma_store(10**8):
        pass
