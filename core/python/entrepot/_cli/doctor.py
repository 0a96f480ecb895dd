"""``entrepot doctor``: checks what this machine offers a store, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import platform
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from entrepot._cli.common import add_connection_options, human_bytes
from entrepot._daemon import launcher
from entrepot._daemon.settings import config_path, resolve, socket_path
from entrepot.errors import EntrepotError
from entrepot.phrases import count_of

if TYPE_CHECKING:
    from entrepot._cli.common import SubParsers

MADV_COLLAPSE = 25  # Linux 6.1
HUGE_PAGE = 2 << 20
MAP_FIXED = 0x10  # on Linux, the same value on every architecture that we build for
MIN_OPEN_FILES = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    topic: str
    level: Literal["ok", "note", "problem"]
    text: str


def add_subcommands(subparsers: SubParsers) -> None:
    """Add the subcommand."""
    doctor = subparsers.add_parser("doctor", help="check this machine and the store on it")
    add_connection_options(doctor)
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> int:
    """``entrepot doctor``; exit code 1 if something prevents a store from working."""
    results: list[Check] = []
    checks: tuple[Callable[[], Check], ...] = (_kernel, _memfd, _huge_pages, _descriptors, _memory, _binary)
    for check in checks:
        results.append(check())
    results += _store(arguments.address)
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        for result in results:
            print(f"{result.level.ljust(7)}  {result.topic}: {result.text}")
    return 1 if any(result.level == "problem" for result in results) else 0


def _kernel() -> Check:
    text = f"{platform.system()} {platform.release()} on {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux":
        return Check("system", "problem", f"{text}: a store needs Linux")
    return Check("system", "ok", text)


def _memfd() -> Check:
    try:
        fd = os.memfd_create("entrepot-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return Check("memfd", "problem", f"memfd_create failed ({error}): check for a sandbox's system-call filter")
    os.close(fd)
    return Check("memfd", "ok", "shared memory by file descriptor works; the size of /dev/shm does not matter")


def _huge_pages() -> Check:
    # A huge page needs both an address and a file offset that are multiples of its size, so map the start of the file
    # at such an address, inside an area reserved for this.
    try:
        area = mmap.mmap(-1, 2 * HUGE_PAGE)
        fd = os.memfd_create("entrepot-doctor", os.MFD_CLOEXEC)
        os.ftruncate(fd, HUGE_PAGE)
    except OSError as error:
        return Check("huge pages", "note", f"not probed: {error}")
    try:
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        aligned = start + -start % HUGE_PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        libc.mmap.restype = ctypes.c_void_p
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(aligned, HUGE_PAGE, protection, mmap.MAP_SHARED | MAP_FIXED, fd, 0) != aligned:
            return Check("huge pages", "note", f"not probed: mmap: {os.strerror(ctypes.get_errno())}")
        ctypes.memset(aligned, 1, 1)
        if libc.madvise(aligned, HUGE_PAGE, MADV_COLLAPSE) == 0:
            return Check("huge pages", "ok", "MADV_COLLAPSE gives 2 MiB pages: reading and sealing are cheap")
        reason = os.strerror(ctypes.get_errno())
        return Check("huge pages", "note", f"none ({reason}): the store uses small pages, and first reads are slower")
    finally:
        try:
            area.close()
        except BufferError:
            del area  # ctypes holds a buffer export until it is garbage-collected
        os.close(fd)


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MIN_OPEN_FILES:
        return Check(
            "descriptors",
            "note",
            f"limit {soft} (hard {hard}): a large store needs one per segment, raise the limit (ulimit -n)",
        )
    return Check("descriptors", "ok", f"limit {soft}")


def _memory() -> Check:
    numbers: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        numbers[key] = int(rest.split()[0]) * 1024 if rest.split()[-1] == "kB" else int(rest.split()[0])
    text = f"{human_bytes(numbers['MemTotal'])} total, {human_bytes(numbers['MemAvailable'])} available"
    limit = cgroup_limit()
    if limit is not None and limit < numbers["MemTotal"]:
        text += f", control group limit {human_bytes(limit)} (a private store counts against it)"
    return Check("memory", "ok", text)


def cgroup_limit() -> int | None:
    """Return the tightest memory limit of this process's control groups, in bytes; None: no limit."""
    limits: list[int] = []
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        folder = root / path.lstrip("/")
        for directory in (folder, *folder.parents):
            if directory == root.parent:
                break
            try:
                text = (directory / name).read_text(encoding="ascii").strip()
            except OSError:
                continue
            if text.isdecimal() and int(text) < 1 << 60:  # cgroup v1 writes "no limit" as a huge number
                limits.append(int(text))
    return min(limits, default=None)


def _binary() -> Check:
    try:
        path = launcher.daemon_binary()
    except EntrepotError as error:
        return Check("entrepotd", "problem", str(error))
    if not os.access(path, os.X_OK):
        return Check("entrepotd", "problem", f"{path} is not executable")
    return Check("entrepotd", "ok", str(path))


def _store(address: str | None) -> list[Check]:
    try:
        settings = resolve(address)
        location = f"{settings.address} (configuration: {config_path() or 'none'})"
        path = socket_path(settings.address)
        forbidden = launcher.is_forbidden(settings.address)  # then connecting says why
        if not forbidden and not path.exists():
            return [Check("store", "note", f"no store listens at {location}; one is started on first use")]
        if not forbidden and (owner := path.stat().st_uid) != os.getuid():
            return [Check("store", "problem", f"{path} belongs to user {owner}, but this is user {os.getuid()}")]
        if not forbidden and not launcher.is_listening(settings.address):
            return [Check("store", "note", f"{path} is left over from a dead store; starting a store replaces it")]
        from entrepot._store import connection  # here, because it loads the extension

        with connection.connect(settings.address, session="", scope="default", durable=False) as store:
            status = store.status()
    except EntrepotError as error:
        return [Check("store", "problem", str(error))]
    text = (
        f"{location}: version {status['version']}, {count_of(status['objects'], 'object')}, "
        f"{human_bytes(status['used_bytes'])} of {human_bytes(status['capacity_bytes'])} used"
    )
    checks = [Check("store", "ok", text)]
    if note := status["spill"]["note"]:
        state = "in trouble" if status["spill"]["enabled"] else "off, so a full store refuses puts"
        checks.append(Check("disk", "note", f"spilling is {state}: {note}"))
    return checks
