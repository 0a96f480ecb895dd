"""Parts of different builds: rejected with a message that names a remedy, never misread."""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot import _core
from entrepot._daemon import launcher, settings
from entrepot.cli import main

PACKAGE = Path(entrepot.__file__).parent


def test_the_stub_and_the_extension_have_the_same_names() -> None:
    stub = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    types_only = {"Item", "Sealed"}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            methods = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            built = {name for name in vars(getattr(_core, node.name)) if not name.startswith("_")}
            assert built == {name for name in methods if not name.startswith("_")}, node.name
    functions = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    constants = {
        node.target.id for node in stub.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert {name for name in vars(_core) if not name.startswith("_")} == (functions | constants) - types_only


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Copy of the package in the source tree, to be modified by the test."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "entrepot", ignore=shutil.ignore_patterns("__pycache__", "bin")))


def import_error(package: Path, statement: str) -> str:
    """Run the statement with the copy as the package; return the names of its error's classes and the message."""
    search_path = [str(package.parent), sysconfig.get_path("platlib")]
    code = (
        f"import sys; sys.path[:0] = {search_path!r}\n"
        f"try:\n    {statement}\n"
        "except Exception as error:\n    print(*(error_class.__name__ for error_class in type(error).__mro__), error)\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    # Without -S, the editable installation would be imported.
    return done.stdout


@pytest.mark.parametrize("statement", ["from entrepot import connect", "import entrepot; entrepot.connect()"])
def test_an_older_extension_beside_newer_sources(package: Path, statement: str) -> None:
    with (package / "_core.pyi").open("a", encoding="utf-8") as stub:
        stub.write("def added_by_a_pull() -> None: ...\n")
    message = import_error(package, statement)
    assert message.startswith("BuildMismatch VersionMismatch EntrepotError ImportError")
    assert "make build" in message
    assert str(package) in message
    assert _core.API[:12] in message


def test_no_extension_at_all(package: Path) -> None:
    for built in package.glob("_core*.so"):
        built.unlink()
    message = import_error(package, "import entrepot; entrepot.Store")
    assert message.startswith("BuildMismatch")
    assert "make build" in message
    # Parts that do not need the extension still work.
    assert import_error(package, "import entrepot; entrepot.ObjectID.random(); entrepot.StoreFull") == ""


def test_a_matching_copy_is_taken(package: Path) -> None:
    assert import_error(package, "from entrepot import connect") == ""


def stamp_of(address: str) -> int:
    """Stamp of this build's daemon, which it reports to clients of other builds."""
    # This protocol, this layout, a wrong stamp; texts and numbers are empty.
    body = struct.pack("<HHIQ", *_core.PROTOCOL, _core.LAYOUT, 1) + bytes(40)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(address.removeprefix("unix://"))
        connection.sendall(struct.pack("<IHHIIQ", 0x31545045, 10, 0, len(body), 0, 1) + body)
        reply = connection.recv(65536).decode(errors="replace")
    match = re.search(r"this daemon \(version \S+, stamp (\d+)\)", reply)
    assert match, reply
    return int(match[1])


@pytest.fixture
def other_build(daemon: Any, socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Private daemon whose messages have another stamp: this build's program with the constant patched."""
    if platform.machine() != "x86_64":
        pytest.skip("the constant lies in one piece only in x86-64 code")
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        folder = socket_folder / name[4:7].lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    constant = struct.pack("<I", stamp_of(daemon.address) & 0xFFFFFFFF)
    program = launcher.daemon_binary().read_bytes()
    assert constant in program
    changed = socket_folder / "entrepotd"
    changed.write_bytes(program.replace(constant, struct.pack("<I", 0x0BADF00D)))
    changed.chmod(0o700)
    monkeypatch.setenv("ENTREPOT_DAEMON_BINARY", str(changed))
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "64MiB")
    yield changed
    for pid in launcher.listening_pids(settings.private_address()):
        assert launcher.stop(pid)


def test_a_daemon_of_another_build_is_refused_and_can_be_stopped(
    other_build: Path, capsys: pytest.CaptureFixture[str], wait_until: Callable[..., None]
) -> None:
    assert main(["start"]) == 0
    processes = launcher.listening_pids(settings.private_address())
    assert len(processes) == 2  # keeper and daemon
    assert all(os.readlink(f"/proc/{pid}/exe") == str(other_build) for pid in processes)
    with pytest.raises(entrepot.VersionMismatch, match=r"another build.*make build.*entrepot stop"):
        entrepot.connect()
    capsys.readouterr()
    assert main(["status"]) == 1
    assert "another build" in capsys.readouterr().err
    assert main(["stop"]) == 0
    assert "a different version" in capsys.readouterr().out
    wait_until(lambda: not any(launcher.is_running(pid) for pid in processes), "keeper and daemon to end")
    assert main(["stop"]) == 1
    assert "no store listens" in capsys.readouterr().err


def test_nobodys_processes_are_found_where_nobody_listens(daemon: Any, socket_folder: Path) -> None:
    assert launcher.listening_pids(f"unix://{socket_folder}/none.sock") == []
    assert os.getpid() not in launcher.listening_pids(daemon.address)
    assert len(launcher.listening_pids(daemon.address)) == 2
