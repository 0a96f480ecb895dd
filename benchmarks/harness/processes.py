"""Worker processes, and what processes cost: processor time, private memory."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import ROOT

CALL_SECONDS = 240.0
END_SECONDS = 10.0
ALL_CPUS = sorted(os.sched_getaffinity(0))


class WorkerFailed(Exception):
    """A worker could not carry out an operation; the message is its own."""


class WorkerProcess:
    """A producer or consumer process; see ``benchmarks.harness.worker``.

    Args:
        python: the interpreter of the system's environment.
        variables: its environment.
        log: file for its standard error.
    """

    def __init__(self, python: str, variables: dict[str, str], log: Path) -> None:
        self._log = log
        self._file = log.open("ab")
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.harness.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            env=variables | {"PYTHONPATH": str(ROOT)},
            cwd=log.parent,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._rest = b""

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    def send(self, op: str, **arguments: Any) -> None:
        """Start an operation; ``receive`` gets its result."""
        try:
            self._to.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._to.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"the worker is gone: {self._log_end()}") from None

    def receive(self, seconds: float = CALL_SECONDS) -> dict[str, Any]:
        """The result of the operation that was started.

        Raises:
            WorkerFailed: it failed, exited, or took longer than ``seconds``.
        """
        end = time.monotonic() + seconds
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            readable, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                self._process.kill()
                raise WorkerFailed(f"no answer within {seconds:.0f} s: {self._log_end()}")
            part = os.read(self._from.fileno(), 1 << 20)
            if not part:
                raise WorkerFailed(f"the worker ended (code {self._process.wait()}): {self._log_end()}")
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(str(answer["error"]))
        return answer

    def call(self, op: str, *, seconds: float = CALL_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Start an operation and wait for its result."""
        self.send(op, **arguments)
        return self.receive(seconds)

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-1200:].strip() or "(it wrote nothing)"

    def stop(self) -> None:
        """Stop it: by closing its input, else by force."""
        with suppress(BrokenPipeError):
            self._to.close()
        try:
            self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()
        self._file.close()


def cpu_ns(pids: Iterable[int]) -> int:
    """Processor time of all live threads of these processes."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
    return total


def private_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes: anonymous, plus their share of mapped files, without shared memory."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_File:")):
                    total += int(line.split()[1]) << 10
    return total


def set_affinity(pids: Iterable[int], cpus: Sequence[int]) -> None:
    """Bind all threads of these processes to processors."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cpus)


class CpuUsage:
    """Measures how busy the whole machine is, to determine how much of it is due to others."""

    def __init__(self) -> None:
        self._begin = self._read()
        self._at = time.monotonic()

    @staticmethod
    def _read() -> int:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        ticks = sum(fields[:3]) + sum(fields[5:8])  # all but idle and I/O wait; includes stolen time
        return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    def share_of_others(self, own_ns: int) -> float:
        """Share of all processors that was busy with anything but ``own_ns``, since construction."""
        wall = (time.monotonic() - self._at) * 1e9 * (os.cpu_count() or 1)
        return max(0.0, min(1.0, (self._read() - self._begin - own_ns) / max(wall, 1.0)))
