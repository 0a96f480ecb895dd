"""The demo's processes end together with all their descendants, and report what went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from examples.flights.processes import Child, DemoError, free_port, tail

# Starts a child that ignores SIGTERM and one in its own session, and writes their PIDs.
_FAMILY = """
import subprocess, sys, time
apart = "import time; print('ready', flush=True); time.sleep(600)"
stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + apart
children = [
    subprocess.Popen([sys.executable, "-S", "-c", stubborn], stdout=subprocess.PIPE),
    subprocess.Popen([sys.executable, "-S", "-c", apart], stdout=subprocess.PIPE, start_new_session=True),
]
for child in children:
    child.stdout.readline()
with open(sys.argv[1] + ".part", "w") as file:
    file.write(" ".join(str(child.pid) for child in children))
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""


def child_of(code: str, log: Path, *arguments: str) -> Child:
    command = [sys.executable, "-S", "-c", code, *arguments]
    return Child("the child", command, log=log, environment=dict(os.environ), folder=log.parent)


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.slow
def test_stop_ends_everything_below(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    with child_of(_FAMILY, tmp_path / "log", str(pid_file)) as child:
        child.wait_for(pid_file.exists, "its children", 30)
        pids = [int(pid) for pid in pid_file.read_text().split()]
        assert not any(has_ended(pid) for pid in pids)
    wait_until(lambda: all(has_ended(pid) for pid in [child.pid, *pids]))


def test_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    code = "import sys; print('what happened'); sys.exit(3)"
    with child_of(code, tmp_path / "log") as child, pytest.raises(DemoError, match="code 3") as raised:
        child.wait(30)
    assert "what happened" in str(raised.value)


def test_waiting_is_bounded(tmp_path: Path) -> None:
    with child_of("import time; time.sleep(600)", tmp_path / "log") as child:
        with pytest.raises(DemoError, match="still running after"):
            child.wait(0.05)
        with pytest.raises(DemoError, match=r"timed out after .* waiting for Godot"):
            child.wait_for(lambda: False, "Godot", 0.05, interval=0.01)


def test_waiting_for_what_has_ended_fails_at_once(tmp_path: Path) -> None:
    with (
        child_of("", tmp_path / "log") as child,
        pytest.raises(DemoError, match="exited with code 0 while waiting for"),
    ):
        child.wait_for(lambda: False, "its socket", 600, interval=0.01)


def test_stop_twice_is_once(tmp_path: Path) -> None:
    child = child_of("import time; time.sleep(600)", tmp_path / "log")
    child.stop()
    child.stop()
    assert has_ended(child.pid)


def test_tail(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "no log" in tail(log)
    log.write_text("\n".join(str(number) for number in range(100)))
    assert tail(log, 2).split() == ["98", "99"]


def test_free_port_is_free() -> None:
    assert 1024 <= free_port() <= 65535


@pytest.mark.slow
def test_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    # Kedro alone starts fastest; the interrupt arrives during its run.
    command = [
        sys.executable,
        "-m",
        "examples.flights",
        "--orchestrators",
        "kedro",
        "--transports",
        "pickle",
        "--scale",
        "1",
    ]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        cwd=root,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        demo = psutil.Process(process.pid)
        wait_until(lambda: any("ParallelRunner" in child.cmdline() for child in _running_children(demo)), 60)
        descendants = demo.children(recursive=True)
        process.terminate()
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    assert not any(child.is_running() for child in descendants)
    assert list(tmp_path.glob("flights-*")) == []


def _running_children(demo: psutil.Process) -> list[psutil.Process]:
    return [child for child in demo.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
