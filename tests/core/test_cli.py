"""Every subcommand of the command line, against a running store."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._daemon import launcher
from entrepot._daemon.launcher import daemon_binary
from entrepot.cli import main

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(daemon: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """``cli("ls", "--json")``: run a subcommand; fail the test unless its exit code is ``code``."""

    def run(*arguments: object, code: int = 0, connect: bool = True) -> subprocess.CompletedProcess[str]:
        command_line = list(map(str, arguments))
        if connect:
            command_line += ["--address", daemon.address, "--scope", "tests"]
        capsys.readouterr()
        returned = main(command_line)
        captured = capsys.readouterr()
        assert returned == code, f"{captured.err}\nthe daemon's log:\n{daemon.log}"
        return subprocess.CompletedProcess(command_line, returned, captured.out, captured.err)

    return run


def test_put_ls_info_get_rm(cli: Run, store: entrepot.Store, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(b"\x00\x01" * 40_000)
    oid = cli("put", file, "--name", "data").stdout.strip()
    assert store.get(oid) == file.read_bytes()
    (listed,) = json.loads(cli("ls", "--json").stdout)
    assert (listed["id"], listed["names"], listed["type"], listed["nbytes"]) == (oid, ["data"], "python.bytes", 80_000)
    assert oid in cli("ls", "da*").stdout
    info = json.loads(cli("info", "data", "--json").stdout)
    assert info["id"] == oid
    text = cli("info", oid).stdout
    assert "python.bytes" in text
    assert re.search(r"^created +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$", text, re.MULTILINE)
    assert re.search(r"^recomputed +False$", text, re.MULTILINE)
    assert info["made_again"] is False
    out = tmp_path / "out.bin"
    cli("get", "data", "-o", out)
    assert out.read_bytes() == file.read_bytes()
    assert "'data'" in cli("put", __file__, "--name", "data", code=1).stderr
    assert "pass --replace to rebind it" in cli("put", file, "--name", "data", code=1).stderr
    cli("put", file, "--name", "data", "--replace")
    cli("rm", oid)
    assert not store.exists(oid)
    assert oid in cli("rm", oid, code=1).stderr
    assert "0" * 40 in cli("get", "0" * 40, code=1).stderr


def test_upgrade(cli: Run, store: entrepot.Store, daemon: Any, tmp_path: Path) -> None:
    program = tmp_path / "entrepotd"
    shutil.copy2(daemon_binary(), program)
    oid = store.put(b"x" * 100_000)
    pinned_value = store.get(oid, copy="never")
    output = cli("upgrade", "--program", program).stdout
    assert f"version {entrepot.__version__} (daemon" in output
    assert "with 1 object" in output
    assert store.status()["program"] == str(program)
    assert store.get(oid) == b"x" * 100_000 == pinned_value
    assert "/nowhere" in cli("upgrade", "--program", "/nowhere/entrepotd", code=1).stderr
    assert "/bin/true" in cli("upgrade", "--program", Path("/bin/true").resolve(), code=1).stderr.replace("/usr", "")
    assert store.get(oid) == b"x" * 100_000


def test_tables(cli: Run, store: entrepot.Store, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    parquet.write_table(table, tmp_path / "t.parquet")
    oid = cli("put", tmp_path / "t.parquet", "--as", "table").stdout.strip()
    assert store.get(oid).equals(table)
    for suffix in ("parquet", "arrow", "csv"):
        cli("get", oid, "-o", tmp_path / f"out.{suffix}")
    assert parquet.read_table(tmp_path / "out.parquet").equals(table)
    assert (tmp_path / "out.csv").read_text().splitlines()[0].replace('"', "") == "a,b"


def test_status(cli: Run, store: entrepot.Store) -> None:
    store.put(b"x" * 100_000)
    status = json.loads(cli("status", "--json").stdout)
    assert status["objects"] == 1
    assert status["instance"] == store.instance_id
    text = cli("status").stdout
    assert "256.0 MiB" in text
    assert text.splitlines()[-2].split() == ["pid", "client", "pins", "leased", "connected"]
    assert re.search(r"for \d+ s$", text.splitlines()[-1])


def test_doctor(cli: Run) -> None:
    text = cli("doctor").stdout
    for word in ("system", "memfd", "huge pages", "descriptors", "entrepotd", "store"):
        assert word in text.lower(), text


def test_start_stop_logs(cli: Run, socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        folder = socket_folder / name[4:7].lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    started = cli("start", "--size", "64MiB", connect=False).stdout
    assert started.endswith("/sta/entrepot/entrepotd.log\n")
    assert "64.0 MiB" in cli("status", connect=False).stdout
    assert "daemon" in cli("logs", connect=False).stdout
    cli("put", __file__, connect=False)
    assert "stopped; 1 object discarded" in cli("stop", connect=False).stdout
    assert "no store" in cli("status", code=1, connect=False).stderr


def test_each_address_has_a_log_of_its_own(
    cli: Run, socket_folder: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        folder = socket_folder / name[4:7].lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    addresses = [f"unix://{socket_folder}/{name}.sock" for name in ("one", "two", "three")]
    own_log = socket_folder / "three.log"
    private_log = socket_folder / "sta" / "entrepot" / "entrepotd.log"
    for address, options in zip(addresses, ([], [], ["--log-file", own_log]), strict=True):
        started = cli("start", "--size", "64MiB", "--address", address, *options, connect=False).stdout
        log = Path(started.split(" which logs to ")[1].strip())
        wait_until(lambda: address.removeprefix("unix://") in log.read_text(), "the store's first lines")  # noqa: B023
        text = log.read_text()
        assert not any(other.removeprefix("unix://") in text for other in addresses if other != address)
        assert cli("logs", "--address", address, connect=False).stdout.startswith(text)
        monkeypatch.setenv("ENTREPOT_ADDRESS", address)
        assert cli("logs", connect=False).stdout.startswith(text)
        cli("stop", connect=False)
    assert not private_log.exists()
    assert "shutting down" in cli("logs", "--address", addresses[0], connect=False).stdout, "the log outlives its store"
    assert "no store runs at" in cli("logs", "--address", addresses[2], connect=False, code=1).stderr
    assert "shutting down" in cli("logs", "--log-file", own_log, connect=False).stdout
    assert "is not a log file" in cli("logs", "--log-file", socket_folder, connect=False, code=1).stderr
    monkeypatch.delenv("ENTREPOT_ADDRESS")
    assert f"no log at {private_log}" in cli("logs", connect=False, code=1).stderr


def test_a_store_that_was_started_by_hand_logs_to_its_standard_error(
    cli: Run, socket_folder: Path, wait_until: Callable[..., None]
) -> None:
    address = f"unix://{socket_folder}/by-hand.sock"
    command = [str(daemon_binary()), "--address", address, "--size", "64MiB", "--spill-path", "none"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as keeper:
        try:
            wait_until(lambda: launcher.is_listening(address), "the store to listen")
            error = cli("logs", "--address", address, connect=False, code=1).stderr
        finally:
            keeper.terminate()
    assert "was started by hand and logs to its standard error (pipe:[" in error


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "entrepot"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_program(daemon: Any, store: entrepot.Store) -> None:
    store.put([1], name="orders")
    done = program("ls", "--json", "--address", daemon.address, "--scope", "tests")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[0]["names"] == ["orders"]
    done = program("info", "nothing", "--address", daemon.address)
    assert done.returncode == 1
    assert done.stderr.startswith("entrepot: ")
    assert "'nothing'" in done.stderr


def test_bad_usage() -> None:
    done = program("fly")
    assert done.returncode == 2
    assert "fly" in done.stderr


def test_nobody_there(cli: Run, socket_folder: Path) -> None:
    done = cli("ls", "--address", f"unix://{socket_folder}/none.sock", connect=False, code=1)
    assert "entrepot start" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel without huge pages")
def test_the_doctor_asks_for_a_huge_page_where_one_can_be() -> None:
    program = "from entrepot._cli.machine_checks.probes import probe_huge_pages; print(probe_huge_pages().text)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    version = tuple(int(part) for part in platform.release().split(".")[:2])
    # From 6.1 on, this error means a wrong address, not a lack of memory.
    assert version < (6, 1) or "Invalid argument" not in done.stdout
