"""Faults during an upgrade: they cost the upgrade, never the store."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import entrepot
import numpy as np
import pytest
from entrepot._daemon.launcher import daemon_binary

sys.path.insert(0, str(Path(__file__).parent))

from process_steps import KEEPER_MESSAGE_BYTES, Step, Tracer, held
from process_suspension import in_group


@pytest.fixture
def program(socket_folder: Path) -> Path:
    """Another program to upgrade to."""
    path = socket_folder / "entrepotd"
    shutil.copy2(daemon_binary(), path)
    return path


def begin_upgrade(address: str, program: Path) -> threading.Thread:
    """Ask for an upgrade, from another thread and connection, which may be cut off."""

    def ask() -> None:
        with suppress(entrepot.EntrepotError), entrepot.connect(address, scope="tests") as store:
            store._raw().upgrade(str(program))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


@pytest.mark.usefixtures("_ended")
def test_a_keeper_that_dies_after_its_answer_loses_nothing(
    store: entrepot.Store, program: Path, wait_until: Callable[..., None]
) -> None:
    """The daemon has the keeper's answer, and the keeper is killed: the daemon has the only copy of the store."""
    oid = store.put(np.arange(40_000))
    before = store.status()
    tracer = Tracer()
    tracer.attach(before["pid"], "daemon")
    thread = begin_upgrade(store.address, program)
    pid = tracer.run_until("daemon", Step("recvmsg", 1, KEEPER_MESSAGE_BYTES))
    with held(tracer, pid, "stopped", wait_until):
        os.kill(before["keeper_pid"], signal.SIGKILL)
    thread.join(60)
    with entrepot.connect(store.address, scope="tests") as other:  # new clients are accepted again
        assert np.array_equal(other.get(oid), np.arange(40_000))
    after = store.status()
    assert after["pid"] == before["pid"]
    wait_until(lambda: store.status()["keeper_pid"] not in (0, before["keeper_pid"]), "another keeper")
    os.kill(after["pid"], signal.SIGKILL)
    wait_until(lambda: store.status()["pid"] not in (0, after["pid"]), "another daemon")
    assert np.array_equal(store.get(oid), np.arange(40_000))


def test_a_new_program_that_cannot_fork_a_daemon_tries_again(
    store: entrepot.Store, program: Path, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    """Neither it nor the program that it returns to can; a moment later there is room for another process."""
    oid = store.put(np.arange(40_000))
    before = store.status()
    log = socket_folder / "entrepotd.log"
    with in_group(before["keeper_pid"], "pids") as group:
        group.limit_processes(2)  # itself and the thread of its log
        begin_upgrade(store.address, program).join(60)
        wait_until(lambda: log.read_text().count("cannot start a process for") >= 2, "both programs to fail")
        group.limit_processes(None)
        assert np.array_equal(store.get(oid), np.arange(40_000))
        wait_until(lambda: store.status()["pid"] not in (0, before["pid"]), "the next daemon")
        assert store.status()["keeper_pid"] == before["keeper_pid"]


def test_a_return_to_the_previous_program_that_fails_is_tried_again(
    store: entrepot.Store, program: Path, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    """Its file cannot be run at first. Each daemon of the new program is killed before it serves."""
    oid = store.put(np.arange(40_000))
    previous = socket_folder / "previous"
    shutil.copy2(daemon_binary(), previous)
    first = store.status()
    store._raw().upgrade(str(previous))
    wait_until(lambda: store.status()["pid"] not in (0, first["pid"]), "the previous program's daemon")
    tracer = Tracer()
    tracer.attach(first["keeper_pid"], "keeper")
    thread = begin_upgrade(store.address, program)
    try:
        tracer.run_until("keeper", Step("exec"))
        previous.chmod(0o600)
        os.kill(tracer.run_until("child", Step("exec")), signal.SIGKILL)
        os.kill(tracer.run_until("child", Step("exec")), signal.SIGKILL)  # started after the return failed
        previous.chmod(0o700)
        tracer.run_until("keeper", Step("exec", 2))
    finally:
        tracer.close()
    thread.join(60)
    assert os.readlink(f"/proc/{first['keeper_pid']}/exe") == str(previous)
    assert np.array_equal(store.get(oid), np.arange(40_000))
