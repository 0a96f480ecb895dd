"""The machine as its files under ``/proc`` and ``/sys`` describe it: what it is, what is mounted, and its limits."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Engine = Literal["", "docker", "podman", "kubernetes", "container"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: its kind (``tmpfs``, ``overlay``), and its own options."""

    kind: str
    options: tuple[str, ...]

    def size(self) -> int | None:
        """The limit of a tmpfs in bytes; None: none is set, so half of the machine's memory."""
        for option in self.options:
            name, _, value = option.partition("=")
            if name == "size" and value.rstrip("kmg").isdecimal():
                unit = {"k": 10, "m": 20, "g": 30}.get(value[-1], 0)
                return int(value.rstrip("kmg")) << unit
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, or the copy of one's files.

    Attributes:
        root: the folder that has its ``proc`` and ``sys``.
        system: the operating system's name.
        environment: variables of this process.
    """

    root: Path = Path("/")
    system: str = field(default_factory=platform.system)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def text(self, path: str) -> str | None:
        """The content of a file; None: there is none, or it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def engine(self) -> Engine:
        """What runs this container; ``""``: this is none, as far as can be told."""
        if "KUBERNETES_SERVICE_HOST" in self.environment:
            return "kubernetes"
        if (self.root / "run/.containerenv").exists():
            return "podman"
        if (self.root / ".dockerenv").exists():
            return "docker"
        return "container" if self.environment.get("container") else ""  # systemd-nspawn, LXC and others set it

    def wsl(self) -> Literal[0, 1, 2]:
        """The version of the Windows Subsystem for Linux; 0: this is another Linux."""
        release = self.text("proc/sys/kernel/osrelease") or ""
        if "microsoft" not in release.lower():
            return 0
        return 2 if "WSL2" in release or "microsoft-standard" in release else 1

    def limit(self, name: str) -> int | None:
        """A limit of this process by its name in ``/proc/self/limits`` (the soft one); None: unlimited or unknown."""
        for line in (self.text("proc/self/limits") or "").splitlines():
            if line.startswith(name + " "):
                soft = line[len(name) :].split()[0]
                return int(soft) if soft.isdecimal() else None
        return None

    def status(self, name: str) -> str | None:
        """A field of ``/proc/self/status``."""
        for line in (self.text("proc/self/status") or "").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
        return None

    def memory(self) -> dict[str, int]:
        """``/proc/meminfo``, in bytes."""
        numbers: dict[str, int] = {}
        for line in (self.text("proc/meminfo") or "").splitlines():
            key, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdecimal():
                numbers[key] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
        return numbers

    def mount_of(self, path: str) -> Mount | None:
        """The file system that an absolute path is on."""
        best, chosen = "", None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            point, rest = before.split()[4], after.split()
            within = path == point or path.startswith(point.rstrip("/") + "/")
            if within and len(point) >= len(best) and rest:  # of two at one place, the later one covers the first
                best, chosen = point, Mount(rest[0], tuple(rest[-1].split(",")))
        return chosen

    def group_limit(self, controller: str, second: str, first: str) -> int | None:
        """The tightest limit that this process's control groups set; None: none.

        Args:
            controller: ``memory`` or ``pids``.
            second: the limit's file in version 2 of control groups.
            first: its file in version 1.
        """
        limits: list[int] = []
        for line in (self.text("proc/self/cgroup") or "").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                mount, name = "sys/fs/cgroup", second
            elif controller in controllers.split(","):
                mount, name = f"sys/fs/cgroup/{controller}", first
            else:
                continue
            # Inside a container the path may be the host's and not exist here; then the mount's root is our group.
            folder = Path(path.lstrip("/"))
            for directory in (folder, *folder.parents):
                text = (self.text(f"{mount}/{directory}/{name}") or "").strip()
                if text.isdecimal() and int(text) < 1 << 60:  # version 1 writes "no limit" as a huge number
                    limits.append(int(text))
        return min(limits, default=None)

    def memory_limit(self) -> int | None:
        """The tightest memory limit of this process's control groups, in bytes; None: no limit."""
        return self.group_limit("memory", "memory.max", "memory.limit_in_bytes")
