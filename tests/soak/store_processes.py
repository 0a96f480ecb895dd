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
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    address = f"unix://{socket_path}"
    named = f"--address={address}" in arguments or ("--address" in arguments and address in arguments)
    if not named or fields[0] in "ZX" or not arguments[0].endswith("entrepotd"):
        return None
    role = next((word.removeprefix("--role=") for word in arguments if word.startswith("--role=")), "keeper")
    return Process(pid, int(fields[19]), int(fields[1]), role)


def store_processes(address: str) -> list[Process]:
    """Return all processes that lived at one moment, including stopped ones.

    Scanning all processes takes a while, in which one may end and its successor start, so every match is checked again.
    A forked child that has not called exec yet still looks like its parent.
    """
    path = address.removeprefix("unix://")
    candidates = [candidate for name in os.listdir("/proc") if name.isdigit() and (candidate := _read(int(name), path))]
    current = [process for process in candidates if _read(process.pid, path) == process]
    return [
        process
        for process in current
        if not any(process.parent == other.pid and process.role == other.role for other in current)
    ]


def pid_of(address: str, role: str) -> int:
    """PID of the store's keeper or daemon, the newest if it is being replaced; 0 if there is none at the moment."""
    return max(
        ((process.started, process.pid) for process in store_processes(address) if process.role == role), default=(0, 0)
    )[1]


def store_locks(processes: list[Process]) -> set[int]:
    """Lock files held by these processes; more than one means more than one store."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):
                    link = f"/proc/{process.pid}/fd/{number}"
                    if os.readlink(link).startswith(LOCK_FILE):
                        inodes.add(os.stat(link).st_ino)
    return inodes


def describe_duplicates(address: str) -> str:
    """Describe what there is more than one of; ``""`` if there is at most one daemon and one store."""
    processes = store_processes(address)
    daemons = [process.pid for process in processes if process.role == "daemon"]
    if len(daemons) > 1:
        return f"processes {daemons} are daemons of the store at {address}"
    locks = store_locks(processes)
    if len(locks) > 1 and store_processes(address) == processes:
        return f"the processes {[process.pid for process in processes]} have {len(locks)} stores' locks at {address}"
    return ""
