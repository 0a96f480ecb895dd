"""Probes of what a store uses: each is tried, because no file tells whether a sandbox admits it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from entrepot._cli.machine_checks.check import Check
from entrepot._cli.machine_checks.machine import Machine
from entrepot._cli.machine_checks.surroundings import seccomp_hint

MADV_COLLAPSE = 25  # Linux 6.1
HUGE_PAGE = 2 << 20
MAP_FIXED = 0x10  # on Linux, the same value on every architecture that we build for


def probe_memfd(machine: Machine) -> Check:
    """Sealed memory by file descriptor, which is all that a store's memory is."""
    try:
        fd = os.memfd_create("entrepot-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return Check(
            "memfd",
            "problem",
            f"memfd_create failed ({error}): check for a sandbox's system-call filter",
            seccomp_hint(machine),
        )
    os.close(fd)
    return Check("memfd", "ok", "shared memory by file descriptor works; the size of /dev/shm does not matter")


def probe_pidfd(machine: Machine) -> Check:
    """Descriptors of processes, by which the death of one is seen at once and never mistaken."""
    try:
        fd = os.pidfd_open(os.getpid())
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            raise
        return Check(
            "pidfd",
            "note",
            f"pidfd_open failed ({error}): keeper and daemon watch each other by process number and start time",
            seccomp_hint(machine),
        )
    os.close(fd)
    return Check("pidfd", "ok", "processes can be watched by file descriptor")


def probe_huge_pages() -> Check:
    """Huge pages in shared memory."""
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
        return Check(
            "huge pages",
            "note",
            f"none ({reason}): the store uses small pages, and first reads are slower",
            "uname -r    # MADV_COLLAPSE needs Linux 6.1; on the host of a container or virtual machine too",
        )
    finally:
        try:
            area.close()
        except BufferError:
            del area  # ctypes holds a buffer export until it is garbage-collected
        os.close(fd)
