"""``entrepot start --plasma``: a front end beside the store, started again when it dies, gone with the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import entrepot.plasma as plasma
import pytest
from entrepot._daemon import companions
from entrepot._daemon.launcher import is_listening
from entrepot.cli import main
from suspension import suspend

pytestmark = pytest.mark.timeout(120)


def front_ends(socket: Path) -> list[int]:
    """The processes of the front end at a socket: the one that starts it again, and then the one that serves."""
    supervisors: list[int] = []
    serving: list[int] = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"entrepot-plasma-store") and os.fsencode(socket) in words:
            (supervisors if b"--keep-running" in words else serving).append(int(name))
    return supervisors + serving


def test_it_serves_is_started_again_and_ends_with_the_store(
    socket_folder: Path, wait_until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    address, socket = f"unix://{socket_folder}/store.sock", socket_folder / "plasma.sock"
    start = ["start", "--size", "64MiB", "--address", address, "--plasma", str(socket), "--plasma-size", "32MiB"]
    assert main(start) == 0
    try:
        assert "serving Plasma clients" in capsys.readouterr().out
        assert is_listening(f"unix://{socket}")
        child = front_ends(socket)[-1]
        os.kill(child, signal.SIGKILL)
        wait_until(
            lambda: child not in front_ends(socket) and is_listening(f"unix://{socket}"),
            "the front end to be started again",
        )
        capsys.readouterr()
        assert main([start[0], *start[3:]]) == 0  # it can be repeated
        assert "already serving Plasma clients" in capsys.readouterr().out
        assert len(front_ends(socket)) == 2
        assert main([*start[:5], "--plasma", str(socket), "--plasma-size", "16MiB"]) != 0  # another one listens there
    finally:
        assert main(["stop", "--address", address]) == 0
    assert not front_ends(socket)


def test_starting_it_while_it_is_started_again_waits_for_that(
    socket_folder: Path, wait_until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    address, socket = f"unix://{socket_folder}/store.sock", socket_folder / "plasma.sock"
    start = ["start", "--size", "64MiB", "--address", address, "--plasma", str(socket), "--plasma-size", "32MiB"]
    assert main(start) == 0
    try:
        supervisor, child = front_ends(socket)
        suspend(supervisor)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not is_listening(f"unix://{socket}"), "the front end to end")
        capsys.readouterr()
        codes: list[int] = []
        starting = threading.Thread(target=lambda: codes.append(main([start[0], *start[3:]])))
        starting.start()
        os.kill(supervisor, signal.SIGCONT)
        starting.join(60)
        assert codes == [0]
        assert "already serving Plasma clients" in capsys.readouterr().out
        assert front_ends(socket)[0] == supervisor
        assert len(front_ends(socket)) == 2
    finally:
        assert main(["stop", "--address", address]) == 0


def test_when_what_starts_it_again_is_killed_it_ends_and_can_be_started_anew(
    socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    address, socket = f"unix://{socket_folder}/store.sock", socket_folder / "plasma.sock"
    start = ["start", "--size", "64MiB", "--address", address, "--plasma", str(socket), "--plasma-size", "32MiB"]
    assert main(start) == 0
    try:
        supervisor, child = front_ends(socket)
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: supervisor not in front_ends(socket), "it to end")  # what it started may not have ended yet
        assert main(start) == 0
        again = front_ends(socket)
        assert len(again) == 2
        assert not {supervisor, child} & set(again)
    finally:
        assert main(["stop", "--address", address]) == 0


def test_an_occupied_socket_is_refused_by_who_listens_there(
    daemon: Any, new_front_end: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    front_end = new_front_end(16 << 20)
    assert main(["start", "--address", daemon.address, "--plasma", str(front_end.socket)]) != 0
    assert f"something listens there already; end it first (kill {front_end.process.pid})" in capsys.readouterr().err


def test_a_front_end_that_does_not_end_with_its_store_is_named(
    socket_folder: Path,
    wait_until: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(companions, "END_SECONDS", 0.2)
    address, socket = f"unix://{socket_folder}/store.sock", socket_folder / "plasma.sock"
    assert main(["start", "--size", "64MiB", "--address", address, "--plasma", str(socket)]) == 0
    child = front_ends(socket)[-1]
    suspend(child)
    try:
        assert main(["stop", "--address", address]) != 0
        error = capsys.readouterr().err
        assert str(child) in error
        assert f"kill -CONT {child}" in error
    finally:
        os.kill(child, signal.SIGCONT)
    wait_until(lambda: not front_ends(socket), "the front end to end once it goes on")


def test_what_cannot_start_is_not_started_again(
    daemon: Any, socket_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = socket_folder / "plasma.sock"
    assert main(["start", "--address", daemon.address, "--plasma", str(socket), "--plasma-size", "1TiB"]) != 0
    error = capsys.readouterr().err
    assert "exited before it was ready" in error
    assert "pass less with -m" in error
    assert not front_ends(socket)


def test_a_client_of_the_store_is_told_where_its_store_is(daemon: Any, new_front_end: Any) -> None:
    front_end = new_front_end(16 << 20)
    with pytest.raises(entrepot.InvalidArgument, match=rf"served by entrepot-plasma-store.*{daemon.address}"):
        plasma.connect(str(front_end.socket))
    with pytest.raises(entrepot.InvalidArgument, match=rf"served by entrepot-plasma-store.*{daemon.address}"):
        entrepot.connect(f"unix://{front_end.socket}")


def test_a_size_without_a_socket_is_refused(daemon: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--address", daemon.address, "--plasma-size", "1MiB"]) != 0
    assert "--plasma-size 1MiB needs --plasma" in capsys.readouterr().err


def test_the_console_script_finds_the_store(daemon: Any, socket_folder: Path, wait_until: Callable[..., None]) -> None:
    socket = socket_folder / "p.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "entrepot.plasma_store_main", "-s", str(socket), "-m", "1000000"],
        env=os.environ | {"ENTREPOT_ADDRESS": daemon.address},
    )
    try:
        wait_until(lambda: is_listening(f"unix://{socket}"), "the front end to listen")
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_an_arena_larger_than_the_store_is_refused(daemon: Any, socket_folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "entrepot.plasma_store_main", "-s", str(socket_folder / "p"), "-m", str(1 << 40)],
        env=os.environ | {"ENTREPOT_ADDRESS": daemon.address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1
    assert "pass less with -m" in run.stderr


def test_a_front_end_that_dies_while_the_store_stands_still_is_started_again(
    socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    address, socket = f"unix://{socket_folder}/store.sock", socket_folder / "plasma.sock"
    start = ["start", "--size", "64MiB", "--address", address, "--plasma", str(socket), "--plasma-size", "32MiB"]
    assert main(start) == 0
    with entrepot.connect(address) as store:
        status = store.status()
    supervisor, child = front_ends(socket)
    try:
        suspend(status["pid"])
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: set(front_ends(socket)) - {supervisor, child}, "another front end, which connects in vain")
        second = front_ends(socket)[-1]
        wait_until(
            lambda: not {supervisor, second} <= set(front_ends(socket)), "it to give up connecting, after ten seconds"
        )
        os.kill(status["pid"], signal.SIGCONT)
        wait_until(lambda: is_listening(f"unix://{socket}"), "a front end that serves")
        assert front_ends(socket)[0] == supervisor
    finally:
        os.kill(status["pid"], signal.SIGCONT)
        assert main(["stop", "--address", address]) == 0
    assert not front_ends(socket)
