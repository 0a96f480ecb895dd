"""Arguments of the command line: wrong ones, objects with unusual names, and what commands say that they did."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._cli.common import table
from entrepot.cli import main

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def cli(daemon: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """``cli("ls", code=0)``: what a subcommand prints on standard output and standard error."""

    def run(*arguments: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        returned = main([*map(str, arguments), "--address", daemon.address])
        captured = capsys.readouterr()
        assert returned == code, captured.err
        return captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "usage", "problem"),
    [
        (["ls", "--foo"], "ls", "unrecognized arguments: --foo"),
        (["sessions", "ttl", "run", "1h", "--foo"], "sessions ttl", "unrecognized arguments: --foo"),
        (["rm", "a", "--foo", "b"], "rm", "unrecognized arguments: --foo"),
        (["logs", "-n", "-5"], "logs", "0 or more, but got '-5'"),
        (["logs", "-n", "many"], "logs", "but got 'many'"),
        (["events", "--kind", "foo"], "events", "no event is of kind 'foo'; the kinds are checkpoint_written, "),
    ],
)
def test_an_error_of_usage_shows_the_usage_of_the_subcommand(
    arguments: list[str], usage: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(arguments)
    error = capsys.readouterr().err
    assert error.startswith(f"usage: entrepot {usage} [-h]"), error
    assert problem in error


def test_an_event_kind_that_exists(tmp_path: Path) -> None:
    assert main(["events", "--kind", "store_full", "--folder", str(tmp_path)]) == 0


def test_a_table_of_a_file_without_a_suffix(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("a\n1\n")
    _, error = cli("put", tmp_path / "numbers", "--as", "table", code=1)
    assert error.endswith(f"but {tmp_path}/numbers has no suffix [E301]\n")
    (tmp_path / "numbers.txt").write_text("a\n1\n")
    _, error = cli("put", tmp_path / "numbers.txt", "--as", "table", code=1)
    assert error.endswith(f"but {tmp_path}/numbers.txt has the suffix '.txt' [E301]\n")
    pytest.importorskip("pyarrow")
    (tmp_path / "numbers.csv").write_text("a\n1\n")
    oid = cli("put", tmp_path / "numbers.csv", "--as", "table")[0].strip()
    _, error = cli("get", oid, "-o", tmp_path / "out", code=1)
    assert error.endswith(f"but {tmp_path}/out has no suffix [E301]\n")


def test_a_name_that_looks_like_an_id(cli: Run, daemon: Any) -> None:
    name = "0123456789abcdef" * 2 + "01234567"
    with entrepot.connect(daemon.address) as store:
        oid = store.put(b"named", name=name)
        assert f"{oid}" in cli("info", name)[0]
        other = store.put(b"other")
        store.set_name(str(other), oid)
        assert cli("get", other)[0] == "other", "an ID comes before a name"
        assert cli("rm", name)[0] == "1 object deleted\n"
        assert not store.exists(oid)
    _, error = cli("get", name, code=1)
    assert name in error


def test_what_was_done_is_said(cli: Run, daemon: Any) -> None:
    with entrepot.connect(daemon.address, session="run") as store:
        ids = [str(store.put(number)) for number in range(3)]
    assert cli("rm", *ids[:2], "--session", "run")[0] == "2 objects deleted\n"
    output, error = cli("rm", *ids, "--session", "run", code=1)
    assert output == "1 object deleted\n"
    assert "not found, so not deleted" in error
    assert cli("sessions", "ttl", "run", "90min")[0] == "run: is kept for 90 min after its last use\n"
    assert cli("sessions", "ttl", "run", "0")[0] == "run: is kept forever\n"


def test_an_empty_session_beside_others(cli: Run, daemon: Any) -> None:
    assert cli("ls")[1] == ""
    with entrepot.connect(daemon.address, session="run") as store:
        store.put(1)
    assert "but 1 other session has some: 'entrepot ls --all'" in cli("ls")[1]
    for quiet in (["ls", "--json"], ["ls", "--all"], ["ls", "--session", "run"], ["ls", "pattern*"]):
        assert cli(*quiet)[1] == ""


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "entrepot", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"entrepot {entrepot.__version__}\n")


LONG = "name-" * 50


def test_long_names_are_cut_for_a_terminal_only(daemon: Any) -> None:
    with entrepot.connect(daemon.address) as store:
        oid = store.put(1, name=LONG)
    command = [sys.executable, "-m", "entrepot", "ls", "--address", daemon.address]
    assert LONG in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    master, slave = pty.openpty()
    try:
        termios.tcsetwinsize(slave, (24, 110))
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        environment["NO_COLOR"] = "1"
        with subprocess.Popen(command, stdout=slave, env=environment) as process:
            assert process.wait(60) == 0
        lines = os.read(master, 65536).decode().splitlines()
    finally:
        os.close(master)
        os.close(slave)
    assert [len(line) <= 110 for line in lines] == [True, True], lines
    assert lines[1].startswith(f"{oid}  ")
    assert lines[1].endswith("…")


def test_a_table_that_fits_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [["0" * 40, "a" * 100, "b" * 16, "c" * 20]]
    (_, row) = table(rows, ["id", "names", "type", "set"]).splitlines()
    assert row.split() == ["0" * 40, "a" * 15 + "…", "b" * 16, "c" * 15 + "…"]
    monkeypatch.setenv("COLUMNS", str(40 + 100 + 16 + 20 + 6))
    assert table(rows, ["id", "names", "type", "set"]).splitlines()[1].split() == rows[0]
