"""The errors that Entrepot raises.

Every error derives from :class:`EntrepotError`, has a stable ``code``, and says what was wrong, with which value, and
what to do next. It ends with its ``short_code``, under which ``docs/errors`` and ``entrepot explain`` have its causes
and the ways out. Those with a natural counterpart in Python also derive from it, so that ``except KeyError`` or
``except TimeoutError``, written for a dictionary or a queue, keeps working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


class EntrepotError(Exception):
    """Base class of all errors of this package.

    >>> error = ObjectNotFound("no object is named 'orders'")
    >>> print(error)
    no object is named 'orders' [E101]
    >>> print(f"cannot start: {error}")  # the error of which this is the message ends with a code of its own
    cannot start: no object is named 'orders'

    Attributes:
        code: for programs; processes of different versions pass it to each other.
        short_code: for people; names the page that explains the error.
    """

    code: ClassVar[str] = "internal"
    short_code: ClassVar[str] = "E001"

    @property
    def message(self) -> str:
        """The error's text without its short code."""
        # KeyError shows repr(args[0]), which would mangle our messages.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()

    def __str__(self) -> str:
        return f"{self.message} [{self.short_code}]".lstrip()

    def __format__(self, format_spec: str, /) -> str:
        return format(self.message, format_spec)


class ObjectNotFound(EntrepotError, KeyError):
    """No sealed object has this ID or name."""

    code = "object_not_found"
    short_code = "E101"


class ObjectLost(EntrepotError):
    """The object existed, but its bytes are no longer in this store (or live on another host).

    Attributes:
        may_come_back: whether the same read may succeed elsewhere or later, because another host may still have the
            object, or a copy of it is still being written. Otherwise only whoever wrote it can bring it back.
    """

    code = "object_lost"
    short_code = "E102"
    may_come_back: bool = False


class ObjectDropped(ObjectLost):
    """The object was dropped because memory was short and recomputing it was cheaper than spilling: rerun its task.

    Raised only for objects whose writer allowed it, by ``Store.hint(oid, recompute_seconds=...)`` or a policy's
    ``memory``.
    """

    code = "object_dropped"
    short_code = "E103"


class CorruptData(ObjectLost):
    """Data read back does not match its checksum; it is never returned."""

    code = "corrupt_data"
    short_code = "E104"


class ObjectExists(EntrepotError):
    """An object with this ID already exists with other content, or a name is already bound to another object."""

    code = "object_exists"
    short_code = "E105"


class NotSealed(EntrepotError):
    """The blob is still being written by its creator."""

    code = "not_sealed"
    short_code = "E106"


class StoreFull(EntrepotError, MemoryError):
    """The object does not fit; the message gives capacity, pinned and unsealed bytes, and what was tried."""

    code = "store_full"
    short_code = "E107"

    def __new__(cls, *args: object) -> Self:
        """Create it. Without this, tblib, with which Dask pickles errors, calls MemoryError's, which refuses."""
        return EntrepotError.__new__(cls, *args)


class StoreUnavailable(EntrepotError, ConnectionError):
    """The daemon cannot be reached."""

    code = "store_unavailable"
    short_code = "E201"


class InstanceLost(StoreUnavailable):
    """The store was replaced by another one, and the operation depended on state that only the old one had.

    For example, a blob being written there, or a locality set's handle. Starting over succeeds.
    """

    code = "instance_lost"
    short_code = "E202"


class DirectoryUnavailable(EntrepotError, ConnectionError):
    """The cluster's directory cannot be reached or does not respond; objects of this host's store are unaffected."""

    code = "directory_unavailable"
    short_code = "E501"


class StreamFailed(EntrepotError):
    """A stream ended before everything was written: a writer died or gave up, or the stream was removed or replaced."""

    code = "stream_failed"
    short_code = "E401"


class StreamLost(StreamFailed):
    """The daemon that had the stream was restarted, or the stream is gone; start its tasks anew with a new stream."""

    code = "stream_lost"
    short_code = "E402"


class StreamEnded(EntrepotError, EOFError):
    """A reader has everything: all writers of the stream have closed, and all chunks were consumed by its group."""

    code = "stream_ended"
    short_code = "E403"


class Timeout(EntrepotError, TimeoutError):
    """The operation did not finish within the given time."""

    code = "timeout"
    short_code = "E206"


class VersionMismatch(EntrepotError):
    """The versions of client and daemon are too far apart, or the data has a newer format."""

    code = "version_mismatch"
    short_code = "E203"


class BuildMismatch(VersionMismatch, ImportError):
    """The Python sources and the extension beside them come from different builds, or the extension is missing."""

    short_code = "E204"


class UnsupportedPlatform(EntrepotError, ImportError):
    """Entrepot does not run on this operating system; the message says what it lacks, and where to run instead."""

    code = "unsupported_platform"
    short_code = "E207"


class AccessDenied(EntrepotError, PermissionError):
    """Access denied: another user's socket, missing permissions, or the process's limit on open descriptors."""

    code = "access_denied"
    short_code = "E205"


class UnsupportedType(EntrepotError, TypeError):
    """No codec supports a value of this type."""

    code = "unsupported_type"
    short_code = "E302"


class CodecFailed(EntrepotError):
    """A codec raised an error of its own while it encoded or decoded a value; that error is the cause."""

    code = "codec_failed"
    short_code = "E303"


class InvalidReference(EntrepotError):
    """A reference passed by an orchestrator is damaged or has an unknown version."""

    code = "invalid_reference"
    short_code = "E304"


class InvalidArgument(EntrepotError, ValueError):
    """An argument is invalid or out of range; the message names the value and what is allowed."""

    code = "invalid_argument"
    short_code = "E301"


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
        DirectoryUnavailable,
        StreamFailed,
        StreamLost,
        StreamEnded,
        Timeout,
        VersionMismatch,
        AccessDenied,
        UnsupportedType,
        CodecFailed,
        InvalidReference,
        InvalidArgument,
    )
}
