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

from entrepot import _launcher
from entrepot._cli_common import add_connection_options, human_bytes
from entrepot._settings import config_path, resolve, socket_path
from entrepot.errors import EntrepotError

if TYPE_CHECKING:
    from entrepot._cli_common import SubParsers

MADV_COLLAPSE = 25  # Linux 6.1
HUGE_PAGE = 2 << 20
MAP_FIXED = 0x10  # on Linux, the same value on every architecture that we build for
FILES_WANTED = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    topic: str
    level: Literal["ok", "note", "problem"]
    text: str


def add_verbs(verbs: SubParsers) -> None:
    """Add the subcommand."""
    doctor = verbs.add_parser("doctor", help="check this machine and the store on it")
    add_connection_options(doctor)
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> int:
    """``entrepot doctor``; exit code 1 if something prevents a store from working."""
    findings: list[Finding] = []
    checks: tuple[Callable[[], Finding], ...] = (_kernel, _memfd, _huge_pages, _descriptors, _memory, _binary)
    for check in checks:
        findings.append(check())
    findings.append(_store(arguments.address))
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.level.ljust(7)}  {finding.topic}: {finding.text}")
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def _kernel() -> Finding:
    text = f"{platform.system()} {platform.release()} on {platform.machine()}, Python {platform.python_version()}"
    if platform.system() != "Linux":
        return Finding("system", "problem", f"{text}: a store needs Linux")
    return Finding("system", "ok", text)


def _memfd() -> Finding:
    try:
        fd = os.memfd_create("entrepot-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return Finding("memfd", "problem", f"memfd_create is refused ({error}): a sandbox's system-call filter?")
    os.close(fd)
    return Finding("memfd", "ok", "shared memory by descriptor works; the size of /dev/shm does not matter")


def _huge_pages() -> Finding:
    # A huge page needs both an address and a file offset that are multiples of its size, so map the start of the file
    # at such an address, inside an area reserved for this.
    try:
        area = mmap.mmap(-1, 2 * HUGE_PAGE)
        fd = os.memfd_create("entrepot-doctor", os.MFD_CLOEXEC)
        os.ftruncate(fd, HUGE_PAGE)
    except OSError as error:
        return Finding("huge pages", "note", f"not probed: {error}")
    try:
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        aligned = start + -start % HUGE_PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        libc.mmap.restype = ctypes.c_void_p
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        both = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(aligned, HUGE_PAGE, both, mmap.MAP_SHARED | MAP_FIXED, fd, 0) != aligned:
            return Finding("huge pages", "note", f"not probed: mmap: {os.strerror(ctypes.get_errno())}")
        ctypes.memset(aligned, 1, 1)
        if libc.madvise(aligned, HUGE_PAGE, MADV_COLLAPSE) == 0:
            return Finding("huge pages", "ok", "MADV_COLLAPSE gives 2 MiB pages: reading and sealing are cheap")
        reason = os.strerror(ctypes.get_errno())
        return Finding(
            "huge pages", "note", f"none ({reason}): the store works with small pages, first reads are slower"
        )
    finally:
        try:
            area.close()
        except BufferError:
            del area  # ctypes holds a buffer export until it is garbage-collected
        os.close(fd)


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        return Finding(
            "descriptors", "note", f"limit {soft} (hard {hard}): a large store has one a segment, raise it (ulimit -n)"
        )
    return Finding("descriptors", "ok", f"limit {soft}")


def _memory() -> Finding:
    numbers: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        numbers[key] = int(rest.split()[0]) * 1024 if rest.split()[-1] == "kB" else int(rest.split()[0])
    text = f"{human_bytes(numbers['MemTotal'])} in all, {human_bytes(numbers['MemAvailable'])} available"
    limit = cgroup_limit()
    if limit is not None and limit < numbers["MemTotal"]:
        text += f", control group's limit {human_bytes(limit)} (a private store counts against it)"
    return Finding("memory", "ok", text)


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
        for place in (folder, *folder.parents):
            if place == root.parent:
                break
            try:
                text = (place / name).read_text(encoding="ascii").strip()
            except OSError:
                continue
            if text.isdecimal() and int(text) < 1 << 60:  # cgroup v1 writes "no limit" as a huge number
                limits.append(int(text))
    return min(limits, default=None)


def _binary() -> Finding:
    try:
        path = _launcher.daemon_binary()
    except EntrepotError as error:
        return Finding("entrepotd", "problem", str(error))
    if not os.access(path, os.X_OK):
        return Finding("entrepotd", "problem", f"{path} cannot be executed")
    return Finding("entrepotd", "ok", str(path))


def _store(address: str | None) -> Finding:
    try:
        settings = resolve(address)
        where = f"{settings.address} (configuration: {config_path() or 'none'})"
        path = socket_path(settings.address)
        if not path.exists():
            return Finding("store", "note", f"nothing listens at {where}; it is started on first use")
        owner = path.stat().st_uid
        if owner != os.getuid():
            return Finding("store", "problem", f"{path} belongs to user {owner}, this is user {os.getuid()}")
        if not _launcher.answers(settings.address):
            return Finding("store", "note", f"{path} is left over from a store that is gone; a start replaces it")
        import entrepot

        with entrepot.connect(settings.address) as store:
            status = store.status()
    except EntrepotError as error:
        return Finding("store", "problem", str(error))
    return Finding(
        "store",
        "ok",
        f"{where}: version {status['version']}, {status['objects']} objects, "
        f"{human_bytes(status['used_bytes'])} of {human_bytes(status['capacity_bytes'])} used",
    )
