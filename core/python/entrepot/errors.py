"""The errors that Entrepot raises.

Every error derives from :class:`EntrepotError`, carries a stable ``code`` and says what was wrong, with which value,
and what to do next. Those with a natural counterpart in Python also derive from it, so that ``except KeyError`` or
``except TimeoutError`` written for a dictionary or a queue keeps working.
"""

from __future__ import annotations

from typing import ClassVar


class EntrepotError(Exception):
    """Base of all errors of this package."""

    code: ClassVar[str] = "internal"

    def __str__(self) -> str:
        # KeyError shows repr(args[0]); a message with advice in it must stay readable.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class ObjectNotFound(EntrepotError, KeyError):
    """No sealed object has this ID or name."""

    code = "object_not_found"


class ObjectLost(EntrepotError):
    """The object existed, but its bytes are no longer in this store (or live on another host)."""

    code = "object_lost"


class ObjectDropped(ObjectLost):
    """Memory was short, and making the object again was cheaper than moving it to disk: its task has to run again.

    Only an object whose writer allowed it, by ``Store.hint(oid, recompute_seconds=...)`` or a policy's ``memory``.
    """

    code = "object_dropped"


class CorruptData(ObjectLost):
    """Bytes came back that do not match their checksum; they are never handed out."""

    code = "corrupt_data"


class ObjectExists(EntrepotError):
    """An object with this ID (or a name) exists already with other content."""

    code = "object_exists"


class NotSealed(EntrepotError):
    """The blob is still being written by its creator."""

    code = "not_sealed"


class StoreFull(EntrepotError, MemoryError):
    """The object does not fit: the message has capacity, pinned, unsealed, and what was tried."""

    code = "store_full"


class StoreUnavailable(EntrepotError, ConnectionError):
    """The daemon cannot be reached."""

    code = "store_unavailable"


class InstanceLost(StoreUnavailable):
    """The store that this belonged to is gone, and another one is there: what only the old one knew cannot go on.

    A blob that was being written there, or a locality set by its number. Doing the same from its beginning works.
    """

    code = "instance_lost"


class Timeout(EntrepotError, TimeoutError):
    """The time given was not enough."""

    code = "timeout"


class VersionMismatch(EntrepotError):
    """Client and daemon speak versions too far apart, or data has a newer format."""

    code = "version_mismatch"


class BuildMismatch(VersionMismatch, ImportError):
    """The Python sources and the extension beside them are of different builds, or the extension is not there."""


class AccessDenied(EntrepotError, PermissionError):
    """Not allowed: another user's socket, or a limit: of permissions, or of the descriptors that a process may have."""

    code = "access_denied"


class UnsupportedType(EntrepotError, TypeError):
    """No codec takes a value of this type."""

    code = "unsupported_type"


class InvalidReference(EntrepotError):
    """A reference that a host handed over is damaged or of an unknown version."""

    code = "invalid_reference"


class InvalidArgument(EntrepotError, ValueError):
    """An argument is out of its range; the message names the value and the range."""

    code = "invalid_argument"


BY_CODE: dict[str, type[EntrepotError]] = {
    cls.code: cls
    for cls in (
        EntrepotError,
        ObjectNotFound,
        ObjectLost,
        ObjectDropped,
        CorruptData,
        ObjectExists,
        NotSealed,
        StoreFull,
        StoreUnavailable,
        InstanceLost,
        Timeout,
        VersionMismatch,
        AccessDenied,
        UnsupportedType,
        InvalidReference,
        InvalidArgument,
    )
}
