"""Removal of the store's socket file, alone or with its directory, while the store runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot import cli
from entrepot._daemon import launcher, settings
from entrepot.errors import StoreUnavailable
from suspension import suspend


@pytest.fixture
def address(private: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of a separate private store, which does not exit when idle."""
    monkeypatch.setenv("ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS", "0")
    return settings.private_address()


def path_of(address: str) -> Path:
    return Path(address.removeprefix("unix://"))


def test_who_finds_no_socket_waits_for_the_store_to_make_it_anew(address: str) -> None:
    with entrepot.connect() as store:
        oid = store.put("kept")
        path_of(address).unlink()
        with entrepot.connect(scope="other") as second:  # uses the same client, which is connected
            assert second.instance_id == store.instance_id
    with entrepot.connect() as store:
        assert store.get(oid) == "kept"
        assert store.status()["follows_killed_store"] is False


def test_a_socket_that_is_made_anew_while_its_holders_are_looked_for(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "listening_pids", lambda address: [])
    assert launcher._wait_for_socket(daemon.address)
    assert not launcher._wait_for_socket(daemon.address + "-not-there")


def test_the_socket_of_a_recreated_folder_is_recreated(daemon: Any, wait_until: Callable[..., None]) -> None:
    folder = path_of(daemon.address).parent
    with entrepot.connect(daemon.address) as store:
        before = store.status()
        oid = store.put("kept")
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        wait_until(lambda: launcher.is_listening(daemon.address), "the socket to be recreated")
        lock = Path(f"{path_of(daemon.address)}.lock")
        assert lock.read_text().startswith(f"{before['keeper_pid']}\n")
    with entrepot.connect(daemon.address) as store:
        assert store.get(oid) == "kept"


def test_the_next_daemon_has_the_socket_too(
    daemon: Any, wait_until: Callable[..., None], python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The keeper holds the new socket, and the next daemon accepts on that socket only."""
    with entrepot.connect(daemon.address) as store:
        oid = store.put("kept")
        pid = store.status()["pid"]
        path_of(daemon.address).unlink()
        wait_until(lambda: launcher.is_listening(daemon.address), "the socket to be recreated")
        # The socket is listening slightly before the keeper has it. The daemon accepts from it only after that.
        assert python("store.status()").returncode == 0
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not launcher.is_running(pid), "the daemon to be dead")
    with entrepot.connect(daemon.address) as store:
        assert store.status()["pid"] != pid
        assert store.get(oid) == "kept"


@pytest.mark.usefixtures("_ended")
def test_the_address_stays_the_stores_whatever_keeper_it_has(
    daemon: Any, store: entrepot.Store, wait_until: Callable[..., None], tmp_path: Path
) -> None:
    """The first keeper claimed the address; its successor claims it too, and records that."""
    before = store.status()
    daemon_pid, first_keeper = before["pid"], before["keeper_pid"]
    os.kill(first_keeper, signal.SIGKILL)
    wait_until(lambda: store.status()["keeper_pid"] not in (0, first_keeper), "another keeper")
    keeper = store.status()["keeper_pid"]
    lock = Path(f"{path_of(daemon.address)}.lock")
    wait_until(lambda: lock.read_text().startswith(f"{keeper}\n"), "the lock to name it")
    suspend(daemon_pid)
    try:
        path_of(daemon.address).unlink()
        with pytest.raises(StoreUnavailable) as caught:
            launcher.start(daemon.address, size="64MiB", idle_exit_seconds=0, log=tmp_path / "log")
    finally:
        os.kill(daemon_pid, signal.SIGCONT)
    assert "exited before it was ready" in str(caught.value)
    assert f"the store of process {keeper} runs at" in str(caught.value)
    assert "its socket was removed" in str(caught.value)
    assert f"kill {keeper}" in str(caught.value)
    wait_until(lambda: launcher.is_listening(daemon.address), "the socket to be recreated")


def test_stop_ends_a_store_whose_socket_was_removed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    stopped, keeper, pid = "", 0, 0
    while "(whose socket was removed) stopped" not in stopped:  # else the daemon recreated it first, then stopped
        assert not stopped or stopped.startswith("store at ")
        with entrepot.connect() as store:
            keeper, pid = store.status()["keeper_pid"], store.status()["pid"]
        path_of(address).unlink()
        assert cli.main(["stop"]) == 0
        stopped = capsys.readouterr().out
    assert not launcher.is_running(keeper)
    assert not launcher.is_running(pid)
