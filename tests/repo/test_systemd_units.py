"""The units for systemd that the documentation offers are valid, and what they start is what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from entrepot._daemon import launcher

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "docs/operations").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")
PROGRAMS = "/usr/local/bin"


def _commands(unit: Path, key: str) -> list[str]:
    (command,) = re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(command)


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze: apt-get install systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8").replace(PROGRAMS, str(Path(sys.executable).parent))
    copy = tmp_path / unit.name.replace("@.", "@airflow.")
    copy.write_text(text, encoding="utf-8")
    manager = "--system" if "@" in unit.name else "--user"
    assert ANALYZE is not None
    command = [ANALYZE, manager, "--man=no", "--recursive-errors=no", "verify", str(copy)]
    runtime = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=runtime, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    copy.write_text(text.replace("KillMode=mixed", "KillMode=unheard-of"), encoding="utf-8")
    done = subprocess.run(command, env=runtime, capture_output=True, text=True, timeout=60)
    assert "unheard-of" in done.stdout + done.stderr, "the check sees nothing"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_commands_start_and_stop_a_store(
    unit: Path, socket_folder: Path, answers: Callable[[str], bool], wait_until: Callable[..., None]
) -> None:
    """As systemd would: with what its specifiers stand for, except that the folders and the size are a test's."""

    def resolved(key: str) -> list[str]:
        words = _commands(unit, key)
        words[0] = words[0].replace(PROGRAMS, str(Path(sys.executable).parent))
        for folder in ("%t/entrepot/", "/run/entrepot-%i/", "/var/cache/entrepot-%i"):
            words = [
                word.replace(folder, f"{socket_folder}/" if folder.endswith("/") else f"{socket_folder}")
                for word in words
            ]
        return [word.replace("8GiB", "64MiB") for word in words]

    start = resolved("ExecStart")
    if "--spill-path" not in start:
        start += ["--spill-path", str(socket_folder)]
    address = start[start.index("--address") + 1]
    assert address == f"unix://{socket_folder}/store.sock"
    keeper = subprocess.Popen(start, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(address), "the store to listen")
        assert launcher.is_running(keeper.pid)
        stopped = subprocess.run(resolved("ExecStop"), capture_output=True, text=True, timeout=60)
        assert stopped.returncode == 0, stopped.stderr
        assert keeper.wait(30) == 0
    finally:
        if keeper.poll() is None:
            keeper.send_signal(signal.SIGTERM)
            keeper.wait(30)
