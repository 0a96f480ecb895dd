"""Ways to keep a process from running, or from running much: by a signal, and those that no signal tells of."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from control_groups import NoControlGroup, made


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def stopped(pid: int, wait_until: Callable[..., None]) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) in "Tt", f"process {pid} to stop")
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def in_group(pid: int, controller: str) -> Iterator[Path]:
    """The process in a control group of its own."""
    try:
        with made(controller, str(pid)) as group:
            (group / "cgroup.procs").write_text(str(pid))
            yield group
    except NoControlGroup as error:
        pytest.skip(f"no control group can be made here: {error}")


@contextmanager
def frozen(pid: int, wait_until: Callable[..., None]) -> Iterator[None]:
    """In a control group that is frozen: no signal says so, and nobody sees it in the process's state."""
    with in_group(pid, "freezer") as group:
        try:
            (group / "freezer.state").write_text("FROZEN")
            wait_until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN", "the control group to freeze")
            yield
        finally:
            (group / "freezer.state").write_text("THAWED")


@contextmanager
def throttled(pid: int, _wait_until: Callable[..., None]) -> Iterator[None]:
    """With a hundredth of a processor: it runs a millisecond, and then not for 99."""
    with in_group(pid, "cpu") as group:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("1000")
        yield


@contextmanager
def traced(pid: int, wait_until: Callable[..., None]) -> Iterator[None]:
    """A debugger has the process, which is stopped as long as that looks at it."""
    libc = ctypes.CDLL(None, use_errno=True)
    attach, detach = 16, 17
    if libc.ptrace(attach, pid, None, None) != 0:
        pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, 0x40000000)  # __WALL: its stop
    try:
        yield
    finally:
        libc.ptrace(detach, pid, None, None)
