"""Errors of the store, as the errors of a file system that programs expect."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from entrepot.errors import (
    AccessDenied,
    EntrepotError,
    InvalidArgument,
    ObjectExists,
    ObjectLost,
    ObjectNotFound,
    StoreFull,
    UnsupportedType,
)

_ERRNO_BY_ERROR: tuple[tuple[type[EntrepotError], int], ...] = (
    (ObjectNotFound, errno.ENOENT),
    (ObjectExists, errno.EEXIST),
    (ObjectLost, errno.EIO),
    (StoreFull, errno.ENOSPC),
    (AccessDenied, errno.EACCES),
    (InvalidArgument, errno.EINVAL),
    (UnsupportedType, errno.EINVAL),
)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Raise errors of the store as ``OSError`` about ``path``, with the store's error as the cause.

    Errors that are of this kind already, such as ``StoreUnavailable``, remain as they are.
    """
    try:
        yield
    except OSError:
        raise
    except EntrepotError as error:
        for kind, number in _ERRNO_BY_ERROR:
            if isinstance(error, kind):
                raise OSError(number, str(error), path) from error
        raise


def not_found(path: str, advice: str) -> FileNotFoundError:
    """The error for a path that leads to nothing."""
    return FileNotFoundError(errno.ENOENT, f"no such object or directory: {advice}", path)


def is_a_directory(path: str, advice: str) -> IsADirectoryError:
    """The error for a directory in the place of a file."""
    return IsADirectoryError(errno.EISDIR, f"this is a directory, not an object: {advice}", path)


def not_permitted(path: str, reason: str) -> PermissionError:
    """The error for a change that the file system refuses."""
    return PermissionError(errno.EPERM, reason, path)
