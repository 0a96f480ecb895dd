"""Clients, daemon and keeper are killed: sealed objects survive, and memory of unsealed ones is freed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._daemon.launcher import daemon_binary

MIB = 1 << 20


def kill_and_wait(store: entrepot.Store, which: str, wait_until: Callable[..., None]) -> None:
    pid = store.status()[which]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: store.status()[which] not in (0, pid), f"another {which}", 60)


def test_a_client_killed_in_the_middle_of_create_returns_its_memory(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    before = store.status()
    client = spawn(
        """
        kept = store.get(store.put(b"k" * 1_000_000, name="kept"))
        blob = store.create(100 << 20)
        blob.view[:4] = b"half"
        print(blob.id, flush=True)
        sys.stdin.readline()
        """
    )
    oid = client.stdout.readline().strip()
    assert store.status()["leased_bytes"] >= 100 * MIB
    client.kill()
    client.wait(30)
    wait_until(lambda: store.status()["leased_bytes"] == before["leased_bytes"], "the dead client's lease")
    wait_until(lambda: len(store.status()["clients"]) == 1, "the dead client to go")
    assert not store.exists(oid)
    assert store.get_by_name("kept") == b"k" * 1_000_000
    assert store.put(np.zeros(150 * MIB, dtype=np.uint8))


def test_a_dead_readers_pin_goes(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    oid = store.put(np.zeros(8 * MIB, dtype=np.uint8))
    client = spawn("value = store.get(sys.argv[1]); print('held', flush=True); sys.stdin.readline()", oid)
    assert client.stdout.readline() == "held\n"
    assert store.delete(oid)
    assert store.status()["deferred_frees"] == 1
    client.kill()
    client.wait(30)
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the dead reader's pin")


@pytest.mark.usefixtures("_ended")
@pytest.mark.parametrize("which", ["pid", "keeper_pid"])
def test_a_killed_daemon_or_keeper_loses_nothing(
    store: entrepot.Store, wait_until: Callable[..., None], which: str
) -> None:
    oids = store.put_many([np.full(60_000, number) for number in range(50)] + [b"small", [1, 2]])
    store.set_name("first", oids[0])
    pinned_value = store.get(oids[7])
    for _ in range(3):
        kill_and_wait(store, which, wait_until)
        values = store.get_many(oids)
        assert all((values[number] == number).all() for number in range(50))
        assert values[50:] == [b"small", [1, 2]]
        assert (pinned_value == 7).all()
        assert store.resolve("first") == oids[0]
        new_oid = store.put(np.full(300_000, 5))
        assert store.get(new_oid)[-1] == 5
        object_count = store.status()["objects"]
        assert store.delete(new_oid)
        assert store.status()["objects"] == object_count - 1


def test_pins_survive_the_daemon(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    oid = store.put(np.full(1_000_000, 3))
    value = store.get(oid)
    kill_and_wait(store, "pid", wait_until)
    assert store.delete(oid)
    for _ in range(20):
        store.delete(store.put(np.zeros(4 * MIB)))
    assert (value == 3).all()
    assert store.status()["deferred_frees"] == 1
    del value
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the last pin's object to be freed")


def test_a_blob_is_sealed_after_the_daemon_came_back(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    with store.create(2 * MIB) as blob:
        blob.view[: 1 * MIB] = b"a" * MIB
        kill_and_wait(store, "pid", wait_until)
        other = store.put(np.full(500_000, 9))
        blob.view[MIB:] = b"b" * MIB
    assert bytes(store.get(blob.id)) == b"a" * MIB + b"b" * MIB
    assert (store.get(other) == 9).all()


def test_a_wait_survives_the_daemon(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    waiter = spawn("print('ready', flush=True); print(store.get(sys.argv[1], timeout=60), flush=True)", "ab" * 20)
    assert waiter.stdout.readline() == "ready\n"
    wait_until(lambda: store.status()["waiting"] == 1, "the reader to wait")
    kill_and_wait(store, "pid", wait_until)
    store.put("at last", id="ab" * 20)
    assert waiter.communicate(timeout=60)[0] == "at last\n"


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(8))
def test_a_keeper_that_inherited_half_a_store_leaves_the_next_one_alone(
    socket_folder: Path, wait_until: Callable[..., None], round_: int
) -> None:
    """The daemon dies while it hands its store to a keeper that it has just started to replace a killed one."""
    address = f"unix://{socket_folder}/s.sock"
    command = [str(daemon_binary()), "--address", address, "--size", "64MiB", "--spill-path", "none"]
    started: list[subprocess.Popen[bytes]] = []

    def answers() -> bool:
        if not started or started[-1].poll() is not None:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        try:
            with entrepot.connect(address, scope="tests") as store:
                pids.append((store.status()["pid"], store.status()["keeper_pid"]))
                return bool(store.get(store.put(b"here")) == b"here")
        except entrepot.StoreUnavailable:
            return False

    pids: list[tuple[int, int]] = []
    try:
        wait_until(answers, "the store")
        daemon, keeper = pids[-1]
        os.kill(keeper, signal.SIGKILL)
        time.sleep(round_ * 0.0008)  # vary the moment at which the daemon dies
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
        started[-1].wait(30)
        wait_until(answers, "a store, the old one or the next")
        end = time.monotonic() + 1.0  # within this time, a wrong successor gives up and removes the socket file
        while time.monotonic() < end:
            assert Path(address.removeprefix("unix://")).exists()
            time.sleep(0.05)
        assert answers()
    finally:
        for _, keeper in pids[-1:]:
            with suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGTERM)
        for process in started:
            process.terminate()  # no effect if it has exited
            process.wait(30)
