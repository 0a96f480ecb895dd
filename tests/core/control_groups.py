"""Control groups for tests, in the hierarchies of cgroup version 1."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


class NoControlGroup(Exception):
    """No control group can be created here; the message says why."""


def own_group(controller: str, pid: int | str = "self") -> str:
    """Path of a process's group below the mount of a controller (version 1), or of version 2 (``""``)."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller:
            return path.lstrip("/")
    return ""


def _create_group(controller: str, name: str) -> Path:
    failures = []
    for parent in (MOUNT / controller / own_group(controller), MOUNT / controller):
        if not (parent / "cgroup.procs").exists():
            failures.append(f"{parent} is no control group of version 1")
            continue
        try:
            (parent / name).mkdir()
        except OSError as error:
            failures.append(str(error))
            continue
        return parent / name
    raise NoControlGroup("; ".join(failures))


@contextmanager
def control_group(controller: str, name: str) -> Iterator[Path]:
    """Create a group with this controller; on exit, move its remaining processes to the parent group.

    Raises:
        NoControlGroup: there is no such version 1 controller, or this user may not create a group in it.
    """
    group = _create_group(controller, f"entrepot-test-{os.getpid()}-{name}")
    try:
        yield group
    finally:
        end = time.monotonic() + 20
        while True:
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has exited
                    (group.parent / "cgroup.procs").write_text(pid)
            try:
                group.rmdir()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
