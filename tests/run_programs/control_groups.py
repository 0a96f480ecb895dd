"""Control groups for tests, of cgroup version 1 or 2, whichever has the controller on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CPU_PERIOD_US = 100_000
REMOVAL_SECONDS = 20.0


class NoControlGroup(Exception):
    """No control group can be created here; the message says why."""


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy of groups.

    Attributes:
        mount: its root.
        version: of cgroup, 1 or 2.
        controller: one that is used in it; version 2 freezes without a controller.
    """

    mount: Path
    version: int
    controller: str

    def group_of(self, pid: int | str = "self", proc: Path = Path("/proc")) -> Path:
        """Group of a process; the root if that cannot be seen from here."""
        wanted = "" if self.version == 2 else self.controller
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if wanted in controllers.split(","):
                group = self.mount / path.lstrip("/")
                return group if group.is_dir() else self.mount
        return self.mount

    def enable(self, parent: Path) -> None:
        """Make the controller available to groups below ``parent``.

        Raises:
            OSError: it is not available to the parent, or that one has processes and is not the root.
        """
        if self.version == 1 or self.controller == "freezer":
            return
        switch = parent / "cgroup.subtree_control"
        if self.controller not in switch.read_text().split():
            switch.write_text(f"+{self.controller}")


def hierarchies(controller: str, mounts: Path = Path("/proc/self/mounts")) -> list[Hierarchy]:
    """Mounted hierarchies with this controller, version 1 first: a controller that it has is missing in version 2."""
    usable = []
    for line in mounts.read_text().splitlines():
        _, mount, kind, options = line.split(" ")[:4]
        if kind == "cgroup" and controller in options.split(","):
            usable.append(Hierarchy(Path(mount), 1, controller))
        elif kind == "cgroup2":
            with suppress(OSError):
                if controller == "freezer" or controller in (Path(mount) / "cgroup.controllers").read_text().split():
                    usable.append(Hierarchy(Path(mount), 2, controller))
    return sorted(usable, key=lambda hierarchy: hierarchy.version)


@dataclass(frozen=True)
class ControlGroup:
    """A group, and what its controller can do to the processes in it."""

    path: Path
    version: int

    def _write(self, name: str, value: object) -> None:
        (self.path / name).write_text(str(value))

    def _read(self, name: str) -> str:
        return (self.path / name).read_text().strip()

    def _count(self, name: str, key: str) -> int:
        """Figure in a file of lines ``key number``."""
        return int(dict(line.split() for line in self._read(name).splitlines())[key])

    @property
    def procs(self) -> Path:
        """File to which a process's PID is written to move it here."""
        return self.path / "cgroup.procs"

    def add(self, pid: int) -> None:
        self._write("cgroup.procs", pid)

    def freeze(self) -> None:
        if self.version == 1:
            self._write("freezer.state", "FROZEN")
        else:
            self._write("cgroup.freeze", 1)

    def thaw(self) -> None:
        if self.version == 1:
            self._write("freezer.state", "THAWED")
        else:
            self._write("cgroup.freeze", 0)

    def is_frozen(self) -> bool:
        """Whether all its processes are frozen by now."""
        if self.version == 1:
            return self._read("freezer.state") == "FROZEN"
        return self._count("cgroup.events", "frozen") == 1

    def limit_cpu(self, percent: int) -> None:
        quota = CPU_PERIOD_US * percent // 100
        if self.version == 1:
            self._write("cpu.cfs_period_us", CPU_PERIOD_US)
            self._write("cpu.cfs_quota_us", quota)
        else:
            self._write("cpu.max", f"{quota} {CPU_PERIOD_US}")

    def limit_processes(self, count: int | None) -> None:
        """Limit the number of threads; more cannot be created. None: no limit."""
        self._write("pids.max", "max" if count is None else count)

    def never_kill(self) -> None:
        """Let processes wait for memory. In version 2 nothing is needed: :meth:`limit_memory` only slows them down."""
        if self.version == 1:
            self._write("memory.oom_control", 1)

    def limit_memory(self, nbytes: int | None) -> None:
        """Limit memory, so that processes above it wait or are slowed down. None: no limit."""
        if self.version == 1:
            self._write("memory.limit_in_bytes", -1 if nbytes is None else nbytes)
        else:
            self._write("memory.high", "max" if nbytes is None else nbytes)

    def kill_above(self, nbytes: int | None) -> None:
        """Limit memory, with the kernel killing a process if there is no other way. None: no limit."""
        if self.version == 1:
            self.limit_memory(nbytes)
        else:
            self._write("memory.max", "max" if nbytes is None else nbytes)

    def memory_used(self) -> int:
        return int(self._read("memory.usage_in_bytes" if self.version == 1 else "memory.current"))

    def memory_limit_hits(self) -> int:
        """Number of times that the limit of :meth:`limit_memory` was hit."""
        return int(self._read("memory.failcnt")) if self.version == 1 else self._count("memory.events", "high")


def _create_group(hierarchy: Hierarchy, name: str) -> ControlGroup:
    failures = []
    own = hierarchy.group_of()
    for parent in dict.fromkeys((own, own.parent if own != hierarchy.mount else own, hierarchy.mount)):
        if not (parent / "cgroup.procs").exists():
            failures.append(f"{parent} is no control group")
            continue
        try:
            hierarchy.enable(parent)
            (parent / name).mkdir()
        except OSError as error:
            failures.append(str(error))
            continue
        return ControlGroup(parent / name, hierarchy.version)
    raise NoControlGroup("; ".join(failures))


def _empty_group(group: ControlGroup, target: Path) -> None:
    for pid in group.procs.read_text().split():
        with suppress(OSError):  # it has exited
            (target / "cgroup.procs").write_text(pid)


@contextmanager
def control_group(controller: str, name: str, version: int | None = None) -> Iterator[ControlGroup]:
    """Create a group with this controller; on exit, move its remaining processes to this process's own group.

    Args:
        version: of cgroup; None: the one that has the controller.

    Raises:
        NoControlGroup: there is no such controller, or this user may not create a group with it.
    """
    usable = [hierarchy for hierarchy in hierarchies(controller) if version in (None, hierarchy.version)]
    if not usable:
        raise NoControlGroup(f"no mounted cgroup hierarchy has the controller {controller}")
    group = _create_group(usable[0], f"entrepot-test-{os.getpid()}-{name}")
    try:
        yield group
    finally:
        end = time.monotonic() + REMOVAL_SECONDS
        while True:
            _empty_group(group, usable[0].group_of())
            try:
                group.path.rmdir()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
