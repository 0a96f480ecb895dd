"""Ways to keep a process from running, or from running much: by a signal, or by means that no signal reports."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from control_groups import ControlGroup, NoControlGroup, control_group
from suspension import suspend


@contextmanager
def stopped(pid: int, _wait_until: Callable[..., None]) -> Iterator[None]:
    suspend(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def in_group(pid: int, controller: str) -> Iterator[ControlGroup]:
    """Put the process into its own control group."""
    try:
        with control_group(controller, str(pid)) as group:
            group.add(pid)
            yield group
    except NoControlGroup as error:
        pytest.skip(f"no control group can be made here: {error}")


@contextmanager
def frozen(pid: int, wait_until: Callable[..., None]) -> Iterator[None]:
    """Freeze the process's control group: no signal reports it, and the process's state does not show it."""
    with in_group(pid, "freezer") as group:
        try:
            group.freeze()
            wait_until(group.is_frozen, "the control group to freeze")
            yield
        finally:
            group.thaw()


@contextmanager
def throttled(pid: int, _wait_until: Callable[..., None]) -> Iterator[None]:
    """Limit the process to one percent of a CPU: it runs for one millisecond, then not for 99."""
    with in_group(pid, "cpu") as group:
        group.limit_cpu(1)
        yield


@contextmanager
def traced(pid: int, wait_until: Callable[..., None]) -> Iterator[None]:
    """Attach a debugger, which keeps the process stopped."""
    libc = ctypes.CDLL(None, use_errno=True)
    attach, detach = 16, 17
    if libc.ptrace(attach, pid, None, None) != 0:
        pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, 0x40000000)  # __WALL: wait for its stop
    try:
        yield
    finally:
        libc.ptrace(detach, pid, None, None)
