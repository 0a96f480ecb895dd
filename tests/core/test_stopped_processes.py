"""Keeper and daemon are stopped, slowed down and traced at each step: at most one daemon, and every value correct.

A silent process may continue at any moment. Treating silence as death would create a second daemon, and two daemons
would write to one store.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import cli
from entrepot._daemon import launcher
from entrepot._daemon.launcher import daemon_binary
from suspension import state_of, suspend

sys.path.insert(0, str(Path(__file__).parent))

from process_suspension import frozen, stopped, throttled, traced

LONG_SECONDS = 6.5  # seconds of silence: more than any timeout ever used between keeper and daemon


def processes(address: str, role: str) -> list[int]:
    """Processes of this store with this role, including stopped ones."""
    pids = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            arguments = (folder / "cmdline").read_bytes().decode().split("\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"--address={address}" in arguments and f"--role={role}" in arguments:
                pids.append(int(folder.name))
    return pids


def value(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 1 << 60, 40_000)


class CheckedValues:
    """Values put into a store, and a check that they are unchanged."""

    def __init__(self) -> None:
        self.oids: dict[int, Any] = {}

    def put(self, store: entrepot.Store, count: int = 10) -> None:
        for _ in range(count):
            number = len(self.oids)
            self.oids[number] = store.put(value(number))

    def put_elsewhere(self, python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
        """Put from another process: a new client for the daemon, unlike a second connection of this process."""
        number = len(self.oids)
        code = """
            import numpy as np
            print(store.put(np.random.default_rng(int(sys.argv[1])).integers(0, 1 << 60, 40_000)))
        """
        done = python(code, number)
        assert done.returncode == 0, done.stderr
        self.oids[number] = done.stdout.strip()

    def check(self, store: entrepot.Store) -> None:
        values = store.get_many(list(self.oids.values()))
        wrong = [
            number
            for number, loaded in zip(self.oids, values, strict=True)
            if not np.array_equal(loaded, value(number))
        ]
        assert not wrong, f"{len(wrong)} of {len(self.oids)} values are wrong: {wrong}"


def test_a_keeper_that_was_silent_for_long_is_not_taken_for_dead(
    store: entrepot.Store, python: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    checked = CheckedValues()
    checked.put(store)
    before = store.status()
    with stopped(before["keeper_pid"], wait_until):
        end = time.monotonic() + LONG_SECONDS
        checked.put_elsewhere(python)
        checked.put(store)
        checked.check(store)
        wait_until(lambda: time.monotonic() > end, "the keeper's time to be long", LONG_SECONDS + 30)
    # A second daemon would be started within milliseconds, and would assign the same memory as the first.
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert len(processes(store.address, "daemon")) == 1
        checked.put(store, 2)
    checked.put_elsewhere(python)
    checked.check(store)
    after = store.status()
    assert (after["pid"], after["keeper_pid"]) == (before["pid"], before["keeper_pid"])


def test_a_stopped_keeper_stalls_no_client_and_gets_what_it_missed(
    store: entrepot.Store, python: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """Clients connect, put and leave while it is stopped; a daemon killed afterwards loses none of that."""
    checked = CheckedValues()
    keeper, first = store.status()["keeper_pid"], store.status()["pid"]
    with stopped(keeper, wait_until):
        for _ in range(3):
            checked.put_elsewhere(python)
        slowest = 0.0
        for _ in range(30):
            began = time.monotonic()
            checked.put(store, 1)
            slowest = max(slowest, time.monotonic() - began)
        checked.check(store)
        big = store.put(np.full(100 << 17, 7))  # 100 MiB: segments that the keeper does not know yet
        assert slowest < 5, "a client waited for the keeper"  # watchdog: the former timeout
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not processes(store.address, "daemon"), "the daemon's end")
        assert processes(store.address, "keeper") or state_of(keeper) in "Tt"
    wait_until(lambda: store.status()["pid"] not in (0, first), "the next daemon", 60)
    checked.check(store)
    assert (store.get(big) == 7).all()
    assert store.status()["keeper_pid"] == keeper
    assert len(processes(store.address, "daemon")) == 1


def test_the_keeper_says_that_its_daemon_is_stopped_and_that_it_goes_on(
    daemon: Any, store: entrepot.Store, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    log = socket_folder / "entrepotd.log"
    pid = store.status()["pid"]

    def was_logged(what: str, times: int) -> bool:
        return log.read_text().count(f"daemon {pid} {what}") == times

    for times in (1, 2):
        with stopped(pid, wait_until):
            wait_until(partial(was_logged, "is stopped", times), "the keeper to say so")
        wait_until(partial(was_logged, "was resumed", times), "the keeper to say so")
    suspend(pid)
    os.kill(pid, signal.SIGKILL)
    assert store.get(store.put([1])) == [1]
    successor = store.status()["pid"]
    with stopped(successor, wait_until):
        wait_until(lambda: f"daemon {successor} is stopped" in log.read_text(), "the keeper to say so of the next one")


def test_a_stopped_daemon_is_not_replaced(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    checked = CheckedValues()
    checked.put(store)
    checked.check(store)  # so that everything is mapped
    first = store.status()["pid"]
    with stopped(first, wait_until):
        checked.check(store)  # reading needs no daemon
        end = time.monotonic() + LONG_SECONDS
        wait_until(lambda: time.monotonic() > end, "the daemon's time to be long", LONG_SECONDS + 30)
        assert processes(store.address, "daemon") == [first]
    checked.put(store)
    checked.check(store)
    assert store.status()["pid"] == first


def test_a_daemon_that_is_stopped_at_its_start_is_waited_for(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    """The daemon is killed, and its successor stopped as soon as it is visible: usually before it has received what the
    keeper sends."""
    checked = CheckedValues()
    checked.put(store)
    clients = [entrepot.connect(store.address, scope="tests") for _ in range(40)]  # descriptors to be handed over
    first = store.status()["pid"]
    os.kill(first, signal.SIGKILL)
    successor = 0

    def find_successor() -> bool:
        nonlocal successor
        successor = next((pid for pid in processes(store.address, "daemon") if pid != first), 0)
        return successor != 0

    wait_until(find_successor, "the next daemon")
    with stopped(successor, wait_until):
        end = time.monotonic() + 2
        wait_until(lambda: time.monotonic() > end, "two seconds")
        assert processes(store.address, "daemon") == [successor]
    checked.check(store)
    checked.put(store)
    checked.check(clients[0])
    for client in clients:
        client.close()
    assert store.status()["pid"] == successor
    assert processes(store.address, "daemon") == [successor]


@pytest.mark.usefixtures("_ended")
def test_a_keeper_that_is_stopped_and_killed_is_replaced_once(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    checked = CheckedValues()
    checked.put(store)
    daemon, keeper = store.status()["pid"], store.status()["keeper_pid"]
    with stopped(keeper, wait_until):
        checked.put(store)
        os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: store.status()["keeper_pid"] not in (0, keeper), "another keeper")
    assert store.status()["pid"] == daemon
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] not in (0, daemon), "another daemon")
    checked.check(store)
    assert len(processes(store.address, "daemon")) == 1
    assert len(processes(store.address, "keeper")) == 1


@pytest.mark.usefixtures("_ended")
def test_a_new_keeper_that_is_stopped_at_its_start_stalls_nobody(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    """It is stopped while being started or filled, then continues or is ended; in the end there is one keeper."""
    checked = CheckedValues()
    checked.put(store)
    daemon, keeper = store.status()["pid"], store.status()["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    successor = 0

    def find_successor() -> bool:
        nonlocal successor
        successor = next((pid for pid in processes(store.address, "keeper") if pid != keeper), 0)
        return successor != 0

    wait_until(find_successor, "the next keeper")
    with stopped(successor, wait_until):
        for _ in range(5):
            began = time.monotonic()
            with entrepot.connect(store.address, scope="tests") as other:
                checked.put(other, 2)
                checked.check(other)
            assert time.monotonic() - began < 5, "a client waited for the keeper"
    wait_until(lambda: store.status()["keeper_pid"] not in (0, keeper), "another keeper")
    wait_until(lambda: len(processes(store.address, "keeper")) == 1, "one keeper")
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] not in (0, daemon), "another daemon")
    checked.check(store)
    assert len(processes(store.address, "daemon")) == 1


def test_an_upgrade_with_a_stopped_keeper_says_so_and_changes_nothing(
    store: entrepot.Store, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    checked = CheckedValues()
    checked.put(store)
    before = store.status()
    program = socket_folder / "entrepotd"
    shutil.copy2(daemon_binary(), program)
    with stopped(before["keeper_pid"], wait_until):
        with pytest.raises(entrepot.EntrepotError, match="it may be stopped"):
            store._raw().upgrade(str(program))
        checked.put(store)
        checked.check(store)
    # The cancelled upgrade must not take place when the daemon dies.
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] not in (0, before["pid"]), "another daemon")
    assert os.readlink(f"/proc/{store.status()['pid']}/exe") != str(program)
    checked.check(store)


def test_whoever_connects_after_an_upgrades_answer_is_not_cut_off(
    store: entrepot.Store, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    """The keeper is stopped when the daemon steps down: clients that connect then are served by the next daemon."""
    checked = CheckedValues()
    checked.put(store)
    for number in range(3):
        before = store.status()
        program = socket_folder / f"entrepotd-{number}"
        shutil.copy2(daemon_binary(), program)
        store._raw().upgrade(str(program))
        # Raw sockets: the library would reconnect and hide the problem.
        sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(20)]
        for connection in sockets:
            connection.connect(store.address.removeprefix("unix://"))
            connection.settimeout(0.0)
        wait_until(lambda pid=before["pid"]: store.status()["pid"] not in (0, pid), "the next daemon")
        for connection in sockets:
            with pytest.raises(BlockingIOError):  # and not end-of-file
                connection.recv(1)
            connection.close()
        assert os.readlink(f"/proc/{store.status()['pid']}/exe") == str(program)
        checked.check(store)
        checked.put(store, 3)
    assert len(processes(store.address, "daemon")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_stops_and_deaths_in_any_order(store: entrepot.Store, wait_until: Callable[..., None], seed: int) -> None:
    """Stop and continue at random, with occasional kills: values stay correct, and one daemon is left."""
    rng = random.Random(seed)
    checked = CheckedValues()
    checked.put(store, 5)
    for _ in range(8):
        status = store.status()
        pid_key = rng.choice(["pid", "keeper_pid"])
        with stopped(status[pid_key], wait_until):
            if pid_key == "keeper_pid":
                with entrepot.connect(store.address, scope="tests") as other:
                    checked.put(other, 2)
                if rng.random() < 0.6:
                    os.kill(status["pid"], signal.SIGKILL)
            end = time.monotonic() + rng.random() * 0.3
            wait_until(lambda end=end: time.monotonic() > end, "a moment")
        checked.put(store, 2)
        checked.check(store)
        assert len(processes(store.address, "daemon")) == 1
    assert len(processes(store.address, "keeper")) <= 1


@pytest.mark.parametrize("how", [frozen, traced, throttled], ids=["frozen", "traced", "throttled"])
def test_a_keeper_that_is_frozen_traced_or_slow_is_not_taken_for_dead(
    store: entrepot.Store, wait_until: Callable[..., None], how: Callable[..., Any]
) -> None:
    checked = CheckedValues()
    checked.put(store)
    before = store.status()
    with how(before["keeper_pid"], wait_until):
        for _ in range(5):
            with entrepot.connect(store.address, scope="tests") as other:
                checked.put(other, 2)
                checked.check(other)
        end = time.monotonic() + LONG_SECONDS
        wait_until(lambda: time.monotonic() > end, "the keeper's time to be long", LONG_SECONDS + 30)
    checked.put(store)
    checked.check(store)
    after = store.status()
    assert (after["pid"], after["keeper_pid"]) == (before["pid"], before["keeper_pid"])
    assert processes(store.address, "daemon") == [before["pid"]]


def test_a_slow_daemon_is_not_replaced_and_a_slow_successor_is_waited_for(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    """A CPU limit (as of a container) makes each step take a hundred times as long."""
    checked = CheckedValues()
    checked.put(store)
    first = store.status()["pid"]
    with throttled(first, wait_until):
        checked.put(store)
        checked.check(store)
        assert store.status()["pid"] == first
    keeper = store.status()["keeper_pid"]
    with throttled(keeper, wait_until):  # and so are the processes that it starts
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: store.status()["pid"] not in (0, first), "the next daemon", 60)
        checked.put(store, 3)
        checked.check(store)
        successor = store.status()["pid"]
        assert processes(store.address, "daemon") == [successor]
    checked.put(store)
    checked.check(store)
    assert (store.status()["pid"], store.status()["keeper_pid"]) == (successor, keeper)


def test_stop_says_that_the_keeper_is_stopped(
    store: entrepot.Store,
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keeper = store.status()["keeper_pid"]
    original_stop = launcher.stop
    monkeypatch.setattr(launcher, "stop", lambda pid: original_stop(pid, 0.0))
    with stopped(keeper, wait_until):
        assert cli.main(["stop", "--address", store.address]) == 1
        assert f"suspended (by SIGSTOP or a debugger): {keeper}; resume them to let it exit: kill -CONT {keeper}" in (
            capsys.readouterr().err
        )
    wait_until(lambda: not launcher.is_running(keeper), "the keeper that goes on to end")
