"""What a directory needs of a server: an ordered table of keys and values, leases, a sequence, word of changes.

Each call is one or few round trips, each bounded by the timeout that the backend was opened with. All raise
DirectoryUnavailable if the server cannot be reached, does not respond in time or cannot do it now, and AccessDenied if
it refuses; afterwards the backend can be used again. All may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class LeaseEnded(Exception):
    """A write was refused, because the lease that it depends on has ended or belongs to somebody else."""


class Entry(NamedTuple):
    """A key with its value."""

    key: bytes
    value: bytes


class Lease(NamedTuple):
    """A lease on an instance's number.

    Attributes:
        number: the instance's number.
        token: stands for this lease; another one for the same number has another token.
    """

    number: int
    token: str


class ServerState(NamedTuple):
    """Tells whether a server still has what it had before.

    Attributes:
        identity: changes if its data may have been replaced.
        position: never decreases while ``identity`` is the same.
    """

    identity: str
    position: int


class Snapshot(NamedTuple):
    """The instances' records by number, the numbers with valid leases, and where to ``subscribe``."""

    records: dict[int, bytes]
    live: set[int]
    cursor: str


class RecordChange(NamedTuple):
    """An instance's record was written, or removed (None)."""

    number: int
    record: bytes | None


class LeaseChange(NamedTuple):
    """An instance's lease was granted, or has ended."""

    number: int
    live: bool


class Subscription(Protocol):
    """Word of changes to the instances, from a snapshot on. For one thread, except ``close``."""

    def wait(self, seconds: float) -> list[RecordChange | LeaseChange] | None:
        """Wait for changes.

        Returns:
            The changes, in their order; empty: there were none within ``seconds``; None: there may have been some, and
            only a new snapshot shows them; this subscription then has to be closed.

        Raises:
            DirectoryUnavailable: the server cannot be reached; this subscription then has to be closed.
        """
        ...

    def close(self) -> None:
        """End it."""
        ...


class Backend(Protocol):
    """A directory's server, with the keys of one cluster."""

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys; None: there is none."""
        ...

    def read_prefixes(self, prefixes: Sequence[bytes]) -> list[list[Entry]]:
        """The entries whose keys begin with each prefix, in the order of their keys."""
        ...

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """Up to ``limit`` entries whose keys begin with ``prefix`` and follow the key ``after``, in their order."""
        ...

    def write(self, lease: Lease, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Write and delete entries, in parts that are atomic; raises LeaseEnded once the lease is not valid."""
        ...

    def delete(self, keys: Sequence[bytes]) -> None:
        """Delete entries, if they exist."""
        ...

    def swap(self, expected: Mapping[bytes, bytes | None], new: Mapping[bytes, bytes | None]) -> bool:
        """Write (or delete: None) all of ``new`` if all of ``expected`` holds; False: it does not hold.

        If it raises DirectoryUnavailable, the change may have been made.
        """
        ...

    def grant(self, number: int, seconds: float) -> Lease:
        """Grant a lease; any earlier one for the number ends."""
        ...

    def keep(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease from now on; False: it had ended."""
        ...

    def release(self, lease: Lease) -> None:
        """End a lease; no-op if it has ended."""
        ...

    def holder(self, number: int) -> str | None:
        """Token of the valid lease on a number, or None."""
        ...

    def next_sequence(self) -> int:
        """A number not less than 1, and greater than all in writes that ended before."""
        ...

    def raise_sequence(self, to: int) -> None:
        """Make all later numbers of ``next_sequence`` greater than ``to``."""
        ...

    def state(self) -> ServerState:
        """See :class:`ServerState`."""
        ...

    def now(self) -> float:
        """Seconds since 1970, by the server's clock."""
        ...

    def snapshot(self) -> Snapshot:
        """The instances now."""
        ...

    def subscribe(self, cursor: str) -> Subscription:
        """Follow the changes since a snapshot, whose cursor this is; does not raise."""
        ...

    def tidy(self) -> None:
        """Give space back that is only used for the past; cheap if there is nothing to do."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
