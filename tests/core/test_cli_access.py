"""The command line where the store, or the session, is not the caller's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.cli import main

OTHER_UID = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def as_another_user(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a subcommand as another user."""
    code = f"""
import encodings.ascii, os, sys
from entrepot.cli import build_parser, main
import entrepot._store.connection
build_parser()  # imports what that user may not be allowed to read
os.setgroups([])
os.setgid({OTHER_UID})
os.setuid({OTHER_UID})
sys.exit(main(sys.argv[1:]))
"""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "ENTREPOT_"))}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env=environment | {"HOME": str(folder / "home")},
    )


@root_only
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=["in a folder of its own", "in a folder that all may enter"])
def test_the_store_of_another_user(daemon: Any, mode: int) -> None:
    folder = Path(daemon.address.removeprefix("unix://")).parent
    folder.chmod(mode)
    status = as_another_user(folder, "status", "--address", daemon.address)
    assert (status.returncode, status.stdout) == (1, "")
    assert "belongs to another user" in status.stderr
    assert "entrepot start" not in status.stderr
    assert status.stderr.count("\n") == 1, "one line, no traceback"
    doctor = as_another_user(folder, "doctor", "--address", daemon.address)
    assert (doctor.returncode, doctor.stderr) == (1, "")
    (line,) = [line for line in doctor.stdout.splitlines() if " store: " in line]
    assert line.startswith("problem  store: ")
    assert "belongs to another user" in line


@pytest.fixture
def sessions(daemon: Any) -> Callable[[], set[tuple[str, str]]]:
    def listed() -> set[tuple[str, str]]:
        with entrepot.connect(daemon.address, scope="default", session="") as store:
            records = json.loads(store._raw().sessions())["sessions"]
            return {(record["scope"], record["session"]) for record in records} - {("default", "")}

    return listed


READING = ["ls", "sets", "info x", "get x", "rm x", "evict x", "prefetch x", "save x file:///nowhere"]


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_creates_no_session(
    command: str,
    daemon: Any,
    sessions: Callable[[], set[tuple[str, str]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with entrepot.connect(daemon.address, scope="other", session="runs"):
        before = sessions()
        arguments = ["--address", daemon.address, "--scope", "tests", "--session", "runs"]
        assert main([*command.split(), *arguments]) == 1
        assert "no session 'runs' in scope 'tests' (but in 'other')" in capsys.readouterr().err
        assert sessions() == before


def test_a_command_about_the_whole_store_needs_no_session(
    daemon: Any,
    sessions: Callable[[], set[tuple[str, str]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENTREPOT_SESSION", "expired")
    for command in (["status"], ["doctor"], ["sessions"], ["ls", "--all"]):
        assert main([*command, "--address", daemon.address]) == 0, capsys.readouterr().err
    assert main(["status", "--session", "mistyped", "--address", daemon.address]) == 0
    assert sessions() == set()
    assert main(["stop", "--address", daemon.address]) == 0, capsys.readouterr().err


def test_a_command_that_writes_creates_the_session(
    daemon: Any, sessions: Callable[[], set[tuple[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--address", daemon.address, "--scope", "tests", "--session", "new"]
    assert main(["put", __file__, "--name", "mine", *arguments]) == 0
    assert ("tests", "new") in sessions()
    capsys.readouterr()
    assert main(["ls", *arguments]) == 0
    assert "mine" in capsys.readouterr().out


def test_a_durable_session_may_exist_in_its_tier_only(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fsspec")
    with entrepot.connect(daemon.address, session="saved", durable=f"file://{tmp_path}") as store:
        store.put(b"kept" * 1000, name="value")
        store.flush_durable()
        other = entrepot.connect(daemon.address)
        other.remove_session("saved")
    other.close()
    monkeypatch.setenv("ENTREPOT_DURABLE", f"file://{tmp_path}")
    assert main(["info", "value", "--address", daemon.address, "--session", "saved"]) == 0, capsys.readouterr().err
    assert "python.bytes" in capsys.readouterr().out
