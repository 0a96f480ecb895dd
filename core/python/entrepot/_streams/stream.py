"""Streams: values that running tasks pass to running tasks, chunk by chunk. See ``Store.stream``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot._client.arguments import checked_boolean, checked_integer, checked_name
from entrepot._daemon.units import parse_size
from entrepot._streams.reader import StreamReader
from entrepot._streams.writer import StreamWriter
from entrepot.errors import InvalidArgument, NotSealed, ObjectExists

if TYPE_CHECKING:
    from entrepot._collections.collection import Collection
    from entrepot._streams.store_access import StreamStore

_EXISTING, _ANY, _NEW = 0, 1, 2
_MAX_NUMBER = 1 << 16  # of capacity and writers; the store checks both
_MAX_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StreamArguments:
    """What ``Store.stream`` is given beside a name; see there."""

    capacity: SupportsIndex | None = None
    capacity_bytes: SupportsIndex | str | None = None
    writers: SupportsIndex | None = None
    groups: Iterable[str] = ()
    keep: bool | None = None
    create: bool = True
    replace: bool = False

    def checked(self) -> dict[str, Any]:
        """Return them as the daemon gets them.

        Raises:
            InvalidArgument: one of them is malformed.
        """
        if isinstance(self.groups, str):
            raise InvalidArgument(
                f"groups must be a sequence of names, but got the string {self.groups!r}: pass [{self.groups!r}]"
            )
        groups = [checked_name(group) for group in self.groups]
        keeps = None if self.keep is None else checked_boolean("keep", self.keep)
        replaces = checked_boolean("replace", self.replace)
        nbytes = self.capacity_bytes
        return {
            "how": _NEW if replaces else _ANY if checked_boolean("create", self.create) else _EXISTING,
            "capacity": _positive("capacity", "the capacity of a stream in chunks", self.capacity),
            "writers": _positive("writers", "the number of a stream's writers", self.writers),
            "keeps": keeps,
            "groups": groups,
            "capacity_bytes": _positive(
                "capacity_bytes",
                "the capacity of a stream in bytes",
                parse_size(nbytes) if isinstance(nbytes, str) else nbytes,
                _MAX_BYTES,
            ),
        }

    @classmethod
    def from_checked(cls, request: dict[str, Any]) -> StreamArguments:
        """The arguments of which :meth:`checked` returned this."""
        how = request["how"]
        return cls(
            capacity=request["capacity"] or None,
            capacity_bytes=request["capacity_bytes"] or None,
            writers=request["writers"] or None,
            groups=request["groups"],
            keep=request["keeps"],
            create=how != _EXISTING,
            replace=how == _NEW,
        )


class Stream:
    """A stream of one session, as this process has it open. Created by :meth:`Store.stream`. Thread-safe.

    States::

        open ──as many writers as it expects have closed──▶ ended
          └──a writer died or gave up──▶ failed ◀── removed, replaced, its session removed, also if it has ended

    A restart of the daemon loses it: then everything about it raises ``StreamLost``.

    Attributes:
        name: its name within the session.
        capacity: how many chunks it holds at most.
        capacity_bytes: how many bytes these may have together; None: unlimited.
        writers: how many writers it expects in total.
        keep: whether chunks stay in the store after they were consumed, as members of a collection of this name.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> stream = store.stream("lines", replace=True)
    >>> with stream.writer() as writer:
    ...     for line in ("first", "second"):
    ...         oid = writer.put(line)
    >>> with store.stream("lines").reader() as reader:  # usually elsewhere, at the same time
    ...     list(reader)
    ['first', 'second']
    >>> stream.remove()
    """

    __slots__ = ("_number", "_store", "capacity", "capacity_bytes", "keep", "name", "writers")

    def __init__(self, store: StreamStore, name: str, arguments: StreamArguments) -> None:
        self._store = store
        self.name = checked_name(name)
        request = arguments.checked()
        if arguments.keep and arguments.replace:
            store.collection(name).discard()
        self._number, self.capacity, self.writers, self.keep, created, nbytes = store._raw().open_stream(
            store._session_number,
            self.name,
            request["how"],
            request["capacity"],
            request["writers"],
            request["keeps"],
            request["groups"],
            request["capacity_bytes"],
        )
        self.capacity_bytes = nbytes or None
        if created and self.keep and store.collection(name).indexes():
            self.remove()
            raise ObjectExists(
                f"the chunks of stream {name!r} are to be kept as collection {name!r}, which has members already: "
                "choose another name, discard() the collection, or pass replace=True"
            )

    @property
    def number(self) -> int:
        """The daemon's number of it."""
        return self._number

    def writer(self) -> StreamWriter:
        """Open one of the stream's writers, for this process; a context manager that closes it.

        Raises:
            InvalidArgument: all writers that the stream expects were opened already.
            StreamFailed, StreamLost: the stream has failed, or is gone.
            StoreUnavailable: the daemon cannot be reached.
        """
        return StreamWriter(self._store, self.name, self._number, keep=self.keep)

    def reader(self, group: str = "readers", *, late: bool = False) -> StreamReader:
        """Open a reader of a group, for this process; an iterator, and a context manager that closes it.

        Each chunk goes to one reader of each group. The first group gets all chunks, also those that were written
        before it came. Another one gets those that have not been consumed by then, and all that follow.

        Args:
            group: the group's name.
            late: whether the group may have missed chunks (:attr:`StreamReader.missed`), which were consumed and
                deleted before it came. A group that is named when the stream is created misses none.

        Raises:
            InvalidArgument: a new group comes too late and ``late`` is False; or it would be the 65th group.
            StreamFailed, StreamLost: the stream has failed, or is gone.
            StoreUnavailable: the daemon cannot be reached.
        """
        return StreamReader(self._store, self._number, checked_name(group), checked_boolean("late", late))

    @property
    def ended(self) -> bool:
        """Whether all its writers have closed; its readers may still have chunks to read.

        Raises:
            StreamFailed, StreamLost: the stream has failed, or is gone.
        """
        return self._store._raw().stream_state(self._number)[0]

    def seal(self) -> Collection:
        """Make a collection of all chunks, in the order in which they were put; for a stream with ``keep=True``.

        The collection has the stream's name (``store.get_by_name``). Readers may still be reading.

        Raises:
            InvalidArgument: the stream was created without ``keep=True``, so consumed chunks are gone.
            NotSealed: not all its writers have closed.
            StreamFailed, StreamLost: the stream has failed, or is gone.
            UnsupportedType and others: as ``CollectionBuilder.seal``.
        """
        if not self.keep:
            raise InvalidArgument(
                f"stream {self.name!r} was created without keep=True, so its chunks are deleted as they are consumed"
            )
        ended, appended, _ = self._store._raw().stream_state(self._number)
        if not ended:
            raise NotSealed(f"the writers of stream {self.name!r} have not all closed: seal it when they have")
        return self._store.collection(self.name).seal(appended)

    def remove(self) -> None:
        """Remove the stream. Its writers and readers get ``StreamFailed``; chunks that are in it are deleted.

        Chunks of a stream with ``keep=True`` stay, as members of its collection.

        Raises:
            ObjectNotFound: it was removed before.
        """
        self._store._raw().remove_stream(self._store._session_number, self.name)

    def __repr__(self) -> str:
        return f"<entrepot.Stream {self.name!r} capacity={self.capacity} writers={self.writers} keep={self.keep}>"


def _positive(argument: str, subject: str, value: Any, maximum: int = _MAX_NUMBER) -> int:
    if value is None:
        return 0  # as the stream has it
    number = checked_integer(subject, value, maximum)
    if number == 0:
        raise InvalidArgument(f"{argument} must be at least 1, but got 0")
    return number
