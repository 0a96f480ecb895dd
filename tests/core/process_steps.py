"""Holding a process at a certain step: it is traced (ptrace) until it gets there, then stopped in one of four ways.

Steps are ends of system calls, so nothing has to be built into the product. What is awaited is described by
:class:`Step`; :class:`Tracer` runs the processes until one arrives. Whoever traces must be the thread that waits, so
what makes the processes run has to be started by another thread or process before.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from process_suspension import in_group
from suspension import state_of

_NUMBERS = {
    "x86_64": {"recvmsg": 47, "sendmsg": 46, "fcntl": 72, "clone": 56, "epoll": 232},
    "aarch64": {"recvmsg": 212, "sendmsg": 211, "fcntl": 25, "clone": 220, "epoll": 22},
}
CALLS = _NUMBERS.get(platform.machine(), {})

_CONT, _DETACH, _SYSCALL, _SEIZE, _INTERRUPT, _SYSCALL_INFO = 7, 17, 24, 0x4206, 0x4207, 0x420E
_TRACE_GOOD, _TRACE_FORK, _TRACE_VFORK, _TRACE_CLONE, _TRACE_EXEC = 0x1, 0x2, 0x4, 0x8, 0x10
_EVENT_EXEC, _EVENT_STOP = 4, 128
_ENTRY, _EXIT = 1, 2
_ALL_CHILDREN = 0x40000000  # __WALL
_SET_LOCK = 6  # F_SETLK
KEEPER_MESSAGE_BYTES = 24
ARRIVAL_SECONDS = 60.0


class _Call(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("values", ctypes.c_uint64 * 7),  # entry: number and arguments; exit: result
    )


@dataclass(frozen=True)
class Step:
    """Where a process is held.

    Attributes:
        event: ``born`` (forked, before it runs anything), ``exec`` (the program was replaced, and runs nothing yet), or
            the name of a system call that has ended.
        count: the how-manieth of these.
        result: of the call: that of a message between keeper and daemon; 0: any other above zero.
    """

    event: str
    count: int = 1
    result: int = 0


@dataclass
class _Traced:
    role: str
    seen: dict[str, int] = field(default_factory=dict[str, int])
    call: tuple[int, int] = (0, 0)  # number and second argument of the current system call


class Tracer:
    """Traces threads until one that plays a certain role comes to a step. To be used by one thread."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._traced: dict[int, _Traced] = {}
        self._at_step = 0  # the thread that is held at a step

    def _request(self, request: int, tid: int, address: int = 0, data: int = 0) -> int:
        result = self._libc.ptrace(
            ctypes.c_long(request), ctypes.c_int(tid), ctypes.c_void_p(address), ctypes.c_void_p(data)
        )
        return int(result)

    def attach(self, pid: int, role: str) -> None:
        """Trace the main thread of a process, and what it starts from now on."""
        if not CALLS:
            pytest.skip(f"system calls of {platform.machine()} are not known")
        options = _TRACE_GOOD | _TRACE_FORK | _TRACE_VFORK | _TRACE_CLONE | _TRACE_EXEC
        if self._request(_SEIZE, pid, 0, options) != 0:
            pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
        self._traced[pid] = _Traced(role)
        self._request(_INTERRUPT, pid)
        end = time.monotonic() + ARRIVAL_SECONDS
        while self._next_stop(end)[0] != pid:
            pass
        self._request(_SYSCALL, pid)

    def _stop_of(self, tid: int) -> int | None:
        """Return the wait status of a traced thread that stopped; a thread that ended is forgotten."""
        try:
            changed, status = os.waitpid(tid, os.WNOHANG | _ALL_CHILDREN)
        except ChildProcessError:
            del self._traced[tid]
            return None
        if changed and os.WIFSTOPPED(status):
            return status
        if changed:
            del self._traced[tid]
        return None

    def _next_stop(self, end: float) -> tuple[int, int]:
        """Wait until a traced thread stops; threads that ended are forgotten."""
        while True:
            for tid in list(self._traced):
                if (status := self._stop_of(tid)) is not None:
                    return tid, status
            self._adopt_children()
            if time.monotonic() > end:
                pytest.fail(f"no process came to the step; traced: {self._traced}")
            time.sleep(0.0005)

    def _adopt_children(self) -> None:
        """Children of traced threads are traced without being asked; find those that have not been seen yet."""
        for tid in list(self._traced):
            with suppress(OSError):
                children = Path(f"/proc/{tid}/task/{tid}/children").read_text().split()
                for role, numbers in (("child", children), ("thread", os.listdir(f"/proc/{tid}/task"))):
                    for number in map(int, numbers):
                        if number not in self._traced and self._is_ours(number):
                            self._traced[number] = _Traced(role)

    @staticmethod
    def _is_ours(tid: int) -> bool:
        with suppress(OSError):
            return f"TracerPid:\t{os.getpid()}\n" in Path(f"/proc/{tid}/status").read_text()
        return False

    def run_until(self, role: str, step: Step) -> int:
        """Let everything run until a thread with this role is at the step, where it stays. Returns its PID."""
        end = time.monotonic() + ARRIVAL_SECONDS
        if self._at_step:
            self._request(_SYSCALL, self._at_step)
        while True:
            tid, status = self._next_stop(end)
            traced = self._traced[tid]
            event = self._event_of(tid, status, traced)
            if event:
                traced.seen[event] = traced.seen.get(event, 0) + 1
                if traced.role == role and event == self._name(step) and traced.seen[event] == step.count:
                    self._at_step = tid
                    return tid
            self._request(_SYSCALL, tid, 0, self._signal_of(status))

    @staticmethod
    def _signal_of(status: int) -> int:
        """Signal for which a thread stopped, and which it must get; 0: none."""
        number = os.WSTOPSIG(status)
        return number if status >> 16 == 0 and number & 0x80 == 0 and number != signal.SIGTRAP else 0

    @staticmethod
    def _name(step: Step) -> str:
        return f"{step.event} {step.result}" if step.result else step.event

    def _event_of(self, tid: int, status: int, traced: _Traced) -> str:
        if status >> 16 == _EVENT_EXEC:
            return "exec"
        if status >> 16 == _EVENT_STOP:
            return "" if "born" in traced.seen else "born"
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            return ""
        info = _Call()
        self._request(_SYSCALL_INFO, tid, ctypes.sizeof(info), ctypes.addressof(info))
        if info.op == _ENTRY:
            traced.call = (info.values[0], info.values[2])
            return ""
        result = ctypes.c_int64(info.values[0]).value
        name = next((name for name, number in CALLS.items() if number == traced.call[0]), "")
        if info.op != _EXIT or not name:
            return ""
        if name == "fcntl":
            return "locked" if traced.call[1] == _SET_LOCK and result == 0 else ""
        if result <= 0:
            return ""
        return f"{name} {result}" if result == KEEPER_MESSAGE_BYTES else name

    def release(self, tid: int, number: int = 0) -> None:
        """Detach from a thread that is stopped here; it goes on, with a signal if there is one for it."""
        self._request(_DETACH, tid, 0, number)
        self._traced.pop(tid, None)

    def reap(self) -> None:
        """Let the parent of a traced process see its end, if it has ended."""
        for tid in list(self._traced):
            try:
                ended, status = os.waitpid(tid, os.WNOHANG | _ALL_CHILDREN)
            except ChildProcessError:
                ended, status = tid, 0
            if ended and not os.WIFSTOPPED(status):
                del self._traced[tid]

    def release_others(self, kept: int) -> None:
        """Detach from all threads but one."""
        end = time.monotonic() + ARRIVAL_SECONDS
        interrupted: set[int] = set()
        while True:
            self._adopt_children()
            others = [tid for tid in self._traced if tid != kept]
            if not others:
                return
            if time.monotonic() > end:
                pytest.fail(f"threads {others} do not stop")
            for tid in others:
                if tid not in interrupted:
                    self._request(_INTERRUPT, tid)
                    interrupted.add(tid)
                if (status := self._stop_of(tid)) is not None:
                    self.release(tid, self._signal_of(status))
            time.sleep(0.0005)

    def close(self) -> None:
        """Detach from everything."""
        if self._at_step in self._traced:
            self.release(self._at_step)
        self.release_others(0)


@contextmanager
def held(tracer: Tracer, pid: int, manner: str, wait_until: Callable[..., None]) -> Iterator[None]:
    """Keep the process, which the tracer has at a step, from going on: ``stopped``, ``frozen``, ``traced`` or
    ``throttled``."""
    with ExitStack() as stack:
        tracer.release_others(pid)
        stack.callback(tracer.close)
        if manner == "stopped":
            os.kill(pid, signal.SIGSTOP)
            tracer.release(pid)
            stack.callback(_resume, pid)
            wait_until(lambda: _state(pid) in "TtZX", f"process {pid} to stop")
        elif manner == "frozen":
            group = stack.enter_context(in_group(pid, "freezer"))
            stack.callback(group.thaw)
            group.freeze()
            tracer.release(pid)
            wait_until(group.is_frozen, "the control group to freeze")
        elif manner == "throttled":
            stack.enter_context(in_group(pid, "cpu")).limit_cpu(1)
            tracer.release(pid)
        else:
            assert manner == "traced"
            stack.callback(tracer.release, pid)
        yield


def _resume(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    """State of a process; ``X`` if it is gone."""
    try:
        return state_of(pid)
    except OSError:
        return "X"
