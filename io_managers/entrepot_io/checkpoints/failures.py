"""Translates file-system errors into Entrepot's."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from entrepot.errors import AccessDenied, EntrepotError, InvalidArgument, StoreFull, StoreUnavailable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_WRONG_PATH = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
# Cloud drivers have their own error classes, which are not imported here but recognized by name.
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "ProfileNotFound",
    "DefaultCredentialsError",
    "ClientAuthenticationError",
}


@contextmanager
def told_as_ours(what: str, url: str) -> Iterator[None]:
    """Translate errors of a file system's driver into Entrepot's.

    Args:
        what: the attempted operation, such as ``"write"``.
        url: its target.

    Raises:
        FileNotFoundError: the target does not exist; passed on, for the caller to interpret.
        AccessDenied: no credentials, no permission, or a read-only file system.
        StoreFull: the target is full.
        InvalidArgument: a component of the path is not a directory, or the name is too long.
        StoreUnavailable: anything else: the target cannot be reached, or failed.
    """
    try:
        yield
    except (EntrepotError, FileNotFoundError):
        raise
    except Exception as error:
        raise _ours(error, what, url) from error


def _ours(error: Exception, what: str, url: str) -> EntrepotError:
    said = f"cannot {what} {url}: {type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if {cls.__name__ for cls in type(error).__mro__} & _NO_CREDENTIALS:
        return AccessDenied(
            f"{said}. Give credentials as the driver takes them: storage_options, environment or configuration file"
        )
    if isinstance(error, PermissionError) or number in _DENIED:
        return AccessDenied(f"{said}. Give this user or these credentials the right to it, or name another target")
    if number in _FULL:
        return StoreFull(
            f"{said}. The target is full: make room there and try again (what was written is used then), "
            "or remove old checkpoints by 'entrepot checkpoints prune'"
        )
    if isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)) or number in _WRONG_PATH:
        return InvalidArgument(f"{said}. A part of this path is something else than a folder: name another target")
    return StoreUnavailable(
        f"{said}. Try again when the target can be reached; what was written until now is used then"
    )
