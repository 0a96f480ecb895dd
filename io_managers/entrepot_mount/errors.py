"""Errors, as the numbers that programs get from the kernel, and as text in the log."""

from __future__ import annotations

import errno
import logging

from entrepot.errors import EntrepotError
from entrepot_io.filesystem.os_errors import os_errors

_log = logging.getLogger("entrepot.mount")
# What programs provoke in normal work is not worth a line in the log.
_ORDINARY = frozenset({errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.ESTALE})


def number_of(error: BaseException, operation: str, path: str) -> int:
    """The number for an error; anything worth it is logged.

    Args:
        error: what an operation raised.
        operation, path: what it was, for the log.
    """
    if isinstance(error, EntrepotError):
        try:
            with os_errors(path):
                raise error
        except OSError as converted:
            number = converted.errno or errno.EIO
        except EntrepotError:
            number = errno.EIO
    elif isinstance(error, OSError):
        number = error.errno or errno.EIO
    else:
        _log.error("%s of %r failed", operation, path, exc_info=error)
        return errno.EIO
    if number not in _ORDINARY:
        _log.warning("%s of %r failed with %s: %s", operation, path, errno.errorcode.get(number, number), error)
    return number
