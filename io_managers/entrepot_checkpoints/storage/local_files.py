"""Local files that are written atomically and survive a crash of the machine.

A file is written under a temporary name, synced, and renamed. Large files bypass the page cache: the disk reads from
the store's memory, or from a small buffer where that is not aligned, so no CPU time is spent on pages that are rarely
read again.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import secrets
from contextlib import suppress

TEMPORARY_MARK = ".tmp-"

PIECE_BYTES = 4 << 20  # bytes per write
DIRECT_FROM_BYTES = 1 << 20  # smaller files are in the page cache before the disk would have started
BLOCK_BYTES = 4096  # alignment of offsets and lengths that direct I/O accepts on every disk
_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_libc = ctypes.CDLL(None)


def write_file(path: str, data: bytes | memoryview, sync: bool) -> list[str]:
    """Write a file atomically, replacing an existing one; on failure nothing is left behind.

    Args:
        path: of the file; missing directories are created.
        data: the whole content.
        sync: whether its bytes reach the disk before the rename.

    Returns:
        The directories in which missing directories were created, topmost first.

    Raises:
        OSError: it cannot be written.
    """
    changed: list[str] = []
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name[:200]}{TEMPORARY_MARK}{secrets.token_hex(8)}"
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    try:
        file = _new_file(temporary)
    except FileNotFoundError:
        changed = make_folders(folder)
        file = _new_file(temporary)
    try:
        try:
            done = _write_directly(file, view) if sync and view.nbytes >= DIRECT_FROM_BYTES else 0
            while done < view.nbytes:
                done += os.write(file, view[done : done + PIECE_BYTES])
                if sync and done < view.nbytes:
                    _start_writeback(file, done)
            if sync:
                os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return changed


def sync_folder(folder: str) -> None:
    """Sync a directory so that its entries survive a crash; does nothing if it is missing or not readable by us.

    Raises:
        OSError: the disk fails.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # removed meanwhile, e.g. by a prune
    except PermissionError:
        return  # an ancestor that we may write but not read, hence cannot sync
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: str) -> list[str]:
    """Create a directory with its parents; returns the directories in which one was created, topmost first."""
    changed: list[str] = []
    parent = os.path.dirname(folder)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return changed  # created by another process meanwhile; a non-directory is noticed by the open
    except FileNotFoundError:
        if parent == folder:
            raise
        changed = make_folders(parent)
        with suppress(FileExistsError):
            os.mkdir(folder)
    return [*changed, parent]


def _new_file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _write_directly(file: int, view: memoryview) -> int:
    """Write whole blocks past the page cache, as far as the file system supports it; returns the bytes written.

    The rest, possibly everything, is left to the caller to write through the page cache.
    """
    done = 0
    end = view.nbytes - view.nbytes % BLOCK_BYTES
    if not _set_direct_io(file, True):
        return 0
    bounce: mmap.mmap | None = None  # page-aligned, as direct I/O requires
    try:
        while done < end and done % BLOCK_BYTES == 0:  # a disk that fills up may write part of a block
            piece = view[done : min(done + PIECE_BYTES, end)]
            try:
                if bounce is None:
                    done += os.write(file, piece)
                    continue
                bounce[: piece.nbytes] = piece
                with memoryview(bounce) as whole, whole[: piece.nbytes] as part:
                    done += os.write(file, part)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                if bounce is not None:
                    break
                bounce = mmap.mmap(-1, min(PIECE_BYTES, end))
    finally:
        if bounce is not None:
            bounce.close()
    _set_direct_io(file, False)
    return done


def _set_direct_io(file: int, enable: bool) -> bool:
    """Enable or disable direct I/O; returns whether the file system supports it."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT if enable else flags & ~os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _start_writeback(file: int, end: int) -> None:
    """Start writing back what was written so far; only a hint, durability comes from the fsync that follows."""
    begin = max(0, end - PIECE_BYTES)
    _libc.sync_file_range(file, ctypes.c_int64(begin), ctypes.c_int64(end - begin), _WRITE)
