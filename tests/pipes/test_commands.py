"""``entrepot pipe run`` and ``entrepot pipe ls``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.cli import main
from entrepot_pipes import open_export, open_import
from entrepot_pipes.commands import add_subcommands

WAIT = 60.0
RUN = [sys.executable, "-m", "entrepot.cli", "pipe", "run"]


@pytest.fixture
def run_pipe(store: entrepot.Store) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [*RUN, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=WAIT)


def test_the_program_finds_store_broker_and_folder(run_pipe: Any, store: entrepot.Store, tmp_path: Path) -> None:
    folder = tmp_path / "reserved"
    script = (
        "import os, json, stat; e = os.environ; s = e['ENTREPOT_PIPES_SOCKET'];"
        "names = ['ADDRESS', 'SCOPE', 'SESSION', 'PIPES_FOLDER', 'PIPE_TIMEOUT'];"
        "print(json.dumps([*(e['ENTREPOT_' + n] for n in names), "
        "stat.S_ISSOCK(os.stat(s).st_mode), oct(os.stat(os.path.dirname(s)).st_mode), s]))"
    )
    with entrepot.connect(store.address, scope="sc", session="se"):
        options = ["--scope", "sc", "--session", "se", "--folder", str(folder), "--timeout", "7"]
        run = run_pipe(*options, "--", sys.executable, "-c", script)
        output, _ = run.communicate(timeout=WAIT)
    assert run.returncode == 0, output
    *found, socket = json.loads(output)
    assert found == [store.address, "sc", "se", str(folder), "7.0", True, "0o40700"]
    assert not os.path.exists(os.path.dirname(socket))


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "exit 7"], 7, ""),
        (["sh", "-c", "kill -USR1 $$"], 128 + signal.SIGUSR1, ""),
        (["no-such-program"], 127, "cannot start 'no-such-program'"),
        (["/"], 126, "cannot start '/'"),
        ([], 1, "give the program to run"),
    ],
)
def test_exit_codes(
    program: list[str], code: int, said: str, store: entrepot.Store, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipe", "run", "--address", store.address, "--", *program]) == code
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--timeout", "-1"], ["--dialect", "x"], ["--dialect", "[]"], ["--export", "x"]])
def test_bad_options(words: list[str], store: entrepot.Store, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["pipe", "run", *words, "--", "true"]) == 1
    assert capfd.readouterr().err.startswith("entrepot: ")
    assert store.status()["streams"] == []


def test_a_file_in_the_fifos_place_is_kept(
    store: entrepot.Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "__reserved__x"
    file.write_text("mine")
    words = ["--address", store.address, "--folder", str(tmp_path), "--export", "db://x", "--", "true"]
    assert main(["pipe", "run", *words]) == 1
    assert "is no FIFO" in capfd.readouterr().err
    assert file.read_text() == "mine"


def test_signals_are_forwarded(run_pipe: Any) -> None:
    run = run_pipe("--", "sh", "-c", "trap 'echo got it; exit 5' TERM; sleep 60 > /dev/null 2>&1 & echo ready; wait")
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    output, _ = run.communicate(timeout=WAIT)
    assert (run.returncode, output) == (5, "got it\n")


def listed(store: entrepot.Store, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["pipe", "ls", "--address", store.address, *words]) == 0
    return capsys.readouterr().out


def test_who_waits_for_whom(store: entrepot.Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(listed(store, capsys, "--json")) == []
    export = open_export("db://a?query=q1", store=store, program="psql -c", pid=42)
    waiting = open_import("db://b?workers=2", store=store, form="text")
    (first, second) = json.loads(listed(store, capsys, "--json"))
    since = first.pop("since"), second.pop("since")
    assert all(isinstance(time, float) for time in since)
    assert first == {
        "pipe": "db://a", "query": "q1", "role": "export", "worker": 0, "workers": 1, "form": "columns",
        "program": "psql -c", "pid": 42, "state": "waiting", "waits_for": "an importer",
    }  # fmt: skip
    assert (second["pid"], second["waits_for"], second["workers"]) == (os.getpid(), "an exporter", 2)
    text = listed(store, capsys)
    assert "waits for an importer" in text
    assert "1 of 2" in text

    reader = open_import("db://a?query=q1", store=store)
    assert {worker["state"] for worker in json.loads(listed(store, capsys, "--json")) if worker["query"]} == {"open"}
    export.abort("the cat")
    assert "the cat" in listed(store, capsys)
    reader.close()
    waiting.close()


def test_the_subcommands_are_registered() -> None:
    from importlib.metadata import entry_points

    registered = {entry.name: entry.value for entry in entry_points(group="entrepot.cli")}
    assert registered["pipes"] == f"{add_subcommands.__module__}:add_subcommands"
