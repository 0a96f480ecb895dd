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
def translate_errors(operation: str, url: str) -> Iterator[None]:
    """Translate errors of a file system's driver into Entrepot's.

    Args:
        operation: the attempted operation, such as ``"write"``.
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
        raise _to_entrepot_error(error, operation, url) from error


def _to_entrepot_error(error: Exception, operation: str, url: str) -> EntrepotError:
    message = f"cannot {operation} {url}: {type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if {cls.__name__ for cls in type(error).__mro__} & _NO_CREDENTIALS:
        return AccessDenied(
            f"{message}. Provide credentials that the driver accepts: storage_options, environment or configuration "
            "file"
        )
    if isinstance(error, PermissionError) or number in _DENIED:
        return AccessDenied(f"{message}. Grant this user or these credentials access to it, or use another target")
    if number in _FULL:
        return StoreFull(
            f"{message}. The target is full: free some space and try again (data already written is reused), "
            "or remove old checkpoints with 'entrepot checkpoints prune'"
        )
    if isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)) or number in _WRONG_PATH:
        return InvalidArgument(f"{message}. A component of this path is not a folder: use another target")
    return StoreUnavailable(f"{message}. Try again when the target can be reached; data already written is reused")
