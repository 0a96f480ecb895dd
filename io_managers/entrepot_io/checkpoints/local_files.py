"""Files of this machine that are there as a whole or not at all, and outlive a crash of the machine.

A file is written beside its place, synced, and renamed into it. Large ones go past the page cache: the disk reads
them from the store's memory, or from a small buffer where that is not aligned, and not one processor second goes into
pages that hardly anybody reads again.
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

PIECE_BYTES = 4 << 20  # handed over at once
DIRECT_FROM_BYTES = 1 << 20  # a smaller file is in the page cache before the disk would have begun
BLOCK_BYTES = 4096  # lengths and places that every disk takes directly
_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_libc = ctypes.CDLL(None)


def write_file(path: str, data: bytes | memoryview, sync: bool) -> list[str]:
    """Write a file, in the place of one that was there; nothing of it stays if that fails.

    Args:
        path: of the file; folders that are not there are made.
        data: all of it.
        sync: whether its bytes are on the disk before it gets its name.

    Returns:
        The folders that got an entry for a folder that was made, the topmost first.

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
                    _start_writing(file, done)
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
    """Have the entries of a folder outlive a crash; nothing if it is not there, or not ours to read.

    Raises:
        OSError: the disk fails.
    """
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # removed meanwhile, by a prune of newer ones say
    except PermissionError:
        return  # one above ours, which we may write and not read: whoever may only do that cannot sync it
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folders(folder: str) -> list[str]:
    """Make a folder with those above it; the folders that got an entry for it, the topmost first."""
    changed: list[str] = []
    above = os.path.dirname(folder)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return changed  # another process was faster; what is no folder is noticed by the open
    except FileNotFoundError:
        if above == folder:
            raise
        changed = make_folders(above)
        with suppress(FileExistsError):
            os.mkdir(folder)
    return [*changed, above]


def _new_file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _write_directly(file: int, view: memoryview) -> int:
    """Write whole blocks past the page cache, as far as the file system does that; how many bytes it took.

    The rest, which may be all, is the caller's, through the page cache.
    """
    done = 0
    end = view.nbytes - view.nbytes % BLOCK_BYTES
    if not _direct(file, True):
        return 0
    bounce: mmap.mmap | None = None  # begins at a page, as what is written directly has to
    try:
        while done < end and done % BLOCK_BYTES == 0:  # a disk that fills up may take a part of a block
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
    _direct(file, False)
    return done


def _direct(file: int, wanted: bool) -> bool:
    """Switch direct writing on or off; whether the file system takes it."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _start_writing(file: int, end: int) -> None:
    """Have the disk begin with what was written until now; a hint, the sync that follows is what counts."""
    begin = max(0, end - PIECE_BYTES)
    _libc.sync_file_range(file, ctypes.c_int64(begin), ctypes.c_int64(end - begin), _WRITE)
