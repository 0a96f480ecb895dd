"""The processes of one store according to the kernel: keeper, daemon, and the holder of the store's lock."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = "/memfd:entrepot-lock"


@dataclass(frozen=True)
class Process:
    """One process of a store, at one moment.

    Attributes:
        pid: its PID.
        started: in clock ticks since boot; unique together with the PID.
        parent: PID of its parent.
        role: ``daemon``, ``keeper`` or ``candidate`` (an upgrade's program that is asked about itself).
    """

    pid: int
    started: int
    parent: int
    role: str


def _read(pid: int, socket_path: str) -> Process | None:
    """Return the process if it lives and belongs to the store."""
    folder = Path(f"/proc/{pid}")
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    address = f"unix://{socket_path}"
    named = f"--address={address}" in words or ("--address" in words and address in words)
    if not named or fields[0] in "ZX" or not words[0].endswith("entrepotd"):
        return None
    role = next((word.removeprefix("--role=") for word in words if word.startswith("--role=")), "keeper")
    return Process(pid, int(fields[19]), int(fields[1]), role)


def store_processes(address: str) -> list[Process]:
    """Return all processes that lived at one moment, including stopped ones.

    Scanning all processes takes a while, in which one may end and its successor start, so every match is checked again.
    A forked child that has not called exec yet still looks like its parent.
    """
    path = address.removeprefix("unix://")
    seen = [found for name in os.listdir("/proc") if name.isdigit() and (found := _read(int(name), path))]
    there = [one for one in seen if _read(one.pid, path) == one]
    return [one for one in there if not any(one.parent == other.pid and one.role == other.role for other in there)]


def pid_of(address: str, role: str) -> int:
    """PID of the store's keeper or daemon, the newest if it is being replaced; 0 if there is none at the moment."""
    return max(((one.started, one.pid) for one in store_processes(address) if one.role == role), default=(0, 0))[1]


def store_locks(processes: list[Process]) -> set[int]:
    """Lock files held by these processes; more than one means more than one store."""
    found = set()
    for one in processes:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{one.pid}/fd"):
                with suppress(OSError):
                    link = f"/proc/{one.pid}/fd/{number}"
                    if os.readlink(link).startswith(LOCK_FILE):
                        found.add(os.stat(link).st_ino)
    return found


def too_many(address: str) -> str:
    """Describe what there is more than one of; ``""`` if there is at most one daemon and one store."""
    processes = store_processes(address)
    daemons = [one.pid for one in processes if one.role == "daemon"]
    if len(daemons) > 1:
        return f"processes {daemons} are daemons of the store at {address}"
    locks = store_locks(processes)
    if len(locks) > 1 and store_processes(address) == processes:
        return f"the processes {[one.pid for one in processes]} have {len(locks)} stores' locks at {address}"
    return ""
