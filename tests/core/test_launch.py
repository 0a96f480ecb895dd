"""The private daemon: started on first use, by one of several processes; its settings; when it is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._daemon import launcher, settings
from entrepot.errors import InvalidArgument, StoreUnavailable
from suspension import suspend


@pytest.mark.slow
def test_fifty_first_starts_make_one_daemon(private: Path) -> None:
    code = "import entrepot; s = entrepot.connect(); s.put(1); print(s.instance_id, s.status()['pid'])"
    clients = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(50)]
    answers = {client.communicate(timeout=100)[0] for client in clients}
    assert all(client.returncode == 0 for client in clients)
    assert len(answers) == 1, answers
    with entrepot.connect() as store:
        assert store.status()["objects"] == 50


def test_it_is_nobodys_child_and_inherits_nothing(private: Path) -> None:
    extra = os.open(private / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(extra, True)
    try:
        with entrepot.connect() as store:
            pid = store.status()["keeper_pid"]
    finally:
        os.close(extra)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[1]) != os.getpid()
    assert int(fields[3]) != os.getsid(0)
    targets = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    assert str(launcher.log_path(settings.private_address())) in targets
    assert str(private / "secret") not in targets
    assert not [target for target in targets if target.startswith("pipe:")]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_starts_without_standard_descriptors(
    socket_folder: Path, answers: Callable[[str], bool], wait_until: Callable[..., None], closed: str
) -> None:
    """Otherwise its descriptors would get numbers 0 to 2, where its children and its log would use them."""
    address = f"unix://{socket_folder}/bare.sock"
    command = [str(launcher.daemon_binary()), "--address", address, "--size", "64MiB", "--spill-path", "none"]
    keeper = subprocess.Popen(["sh", "-c", f'exec "$@" {closed}', "sh", *command])
    try:
        wait_until(lambda: answers(address) or keeper.poll() is not None, "the store to listen")
        assert keeper.poll() is None, f"it ended with code {keeper.poll()}"
        with entrepot.connect(address) as store:
            oid = store.put(b"x" * 100_000)
            assert store.get(oid) == b"x" * 100_000
            for pid in (keeper.pid, store.status()["pid"]):
                targets = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
                assert not [target for target in targets if target.startswith(("socket:", "anon_inode:", "/memfd:"))], (
                    targets
                )
            os.kill(store.status()["pid"], signal.SIGKILL)
            assert store.get(store.put([1])) == [1]  # the next daemon of the same keeper
    finally:
        keeper.terminate()
        keeper.wait(60)


@pytest.mark.slow
def test_it_goes_when_it_is_idle(private: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Any) -> None:
    monkeypatch.setenv("ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS", "1")
    with entrepot.connect() as store:
        oid = store.put(1)
        pid = store.status()["keeper_pid"]
        assert store.delete(oid)
    del store
    wait_until(lambda: not launcher.is_running(pid), "the idle daemon to go")
    with entrepot.connect() as store:
        assert store.status()["keeper_pid"] != pid


def test_a_process_that_nobody_asked_after_has_ended(wait_until: Any) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    assert launcher.is_running(child.pid)
    assert launcher.stop(child.pid)  # its parent, this test, has not waited for it
    assert Path(f"/proc/{child.pid}").exists()
    child.wait(30)
    assert not launcher.is_running(child.pid)
    assert launcher.stop(child.pid)


def test_it_is_refused_in_a_pod(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(StoreUnavailable, match="ENTREPOT_ADDRESS"):
        entrepot.connect()


def test_a_daemon_that_does_not_start_says_why(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "4KiB")
    with pytest.raises(StoreUnavailable, match="--size 4 KiB is below the minimum"):
        entrepot.connect()


def test_it_comes_back_after_it_was_killed(private: Path, wait_until: Any) -> None:
    with entrepot.connect() as store:
        status = store.status()
        for pid in (status["keeper_pid"], status["pid"]):
            suspend(pid)
        for pid in (status["keeper_pid"], status["pid"]):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not launcher.is_listening(settings.private_address()), "the socket to be dead")
    with entrepot.connect() as store:
        assert store.instance_id != status["instance"]


def test_settings_come_from_argument_environment_file_default(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = private / "con" / "entrepot" / "config.toml"
    config.parent.mkdir()
    assert settings.resolve().scope == "default"
    config.write_text('scope = "from file"\nsession = "s"\naddress = "unix:///file"\nallow_pickle = false\n')
    resolved_settings = settings.resolve()
    assert (
        resolved_settings.scope,
        resolved_settings.session,
        resolved_settings.address,
        resolved_settings.configured,
    ) == ("from file", "s", "unix:///file", True)
    assert resolved_settings.allow_pickle is False
    monkeypatch.setenv("ENTREPOT_SCOPE", "from environment")
    monkeypatch.setenv("ENTREPOT_ADDRESS", "unix:///environment")
    resolved_settings = settings.resolve()
    assert (resolved_settings.scope, resolved_settings.address) == ("from environment", "unix:///environment")
    resolved_settings = settings.resolve("unix:///argument", scope="argument", session="")
    assert (resolved_settings.scope, resolved_settings.session, resolved_settings.address) == (
        "argument",
        "",
        "unix:///argument",
    )
    other = private / "other.toml"
    other.write_text("nonsense = 1\n")
    monkeypatch.setenv("ENTREPOT_CONFIG", str(other))
    with pytest.raises(InvalidArgument, match="nonsense"):
        settings.resolve()
    other.write_text("scope = \n")
    with pytest.raises(InvalidArgument, match="TOML"):
        settings.resolve()
    monkeypatch.setenv("ENTREPOT_CONFIG", str(private / "none.toml"))
    with pytest.raises(InvalidArgument, match="none"):
        settings.resolve()


def test_the_import_is_cheap() -> None:
    code = "import sys, json, entrepot; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = json.loads(done.stdout)
    assert "entrepot" in loaded
    assert not [name for name in loaded if name.startswith(("entrepot.", "numpy", "pyarrow", "msgpack", "pandas"))]
