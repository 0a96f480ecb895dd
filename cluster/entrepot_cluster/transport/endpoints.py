"""What the transport moves objects between: where they are read from, and where they are received into.

The gateway provides both; ``store_endpoints`` has them for a store. All methods may be called from several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from entrepot.errors import EntrepotError

if TYPE_CHECKING:
    from entrepot import _core


class Wanted(NamedTuple):
    """An object that somebody asks for.

    Attributes:
        id: its 20 bytes.
        generation: which version of it; None: the one that is there.
    """

    id: bytes
    generation: int | None = None


class Held(NamedTuple):
    """What a gateway has.

    Attributes:
        generation: which version.
        nbytes: size of its buffers in bytes.
    """

    generation: int
    nbytes: int


class ObjectHeader(NamedTuple):
    """An object without its bytes.

    Attributes:
        id: its 20 bytes.
        generation: which version of it, where it comes from.
        tree: its packed tree.
        lengths: of its buffers, in bytes.
    """

    id: bytes
    generation: int
    tree: bytes
    lengths: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of its buffers in bytes."""
        return sum(self.lengths)


class FetchOutcome(NamedTuple):
    """What became of an object.

    Attributes:
        id: its 20 bytes.
        generation: which version the peer has; None: not known.
        nbytes: size of its buffers in bytes; 0 if it failed.
        existed: the sink had it already.
        error: why it was not received; None: the sink has it now.
    """

    id: bytes
    generation: int | None = None
    nbytes: int = 0
    existed: bool = False
    error: EntrepotError | None = None


class SourceObject(Protocol):
    """A sealed object, pinned until :meth:`close`."""

    @property
    def generation(self) -> int:
        """Which version it is, at least 1."""
        ...

    @property
    def tree(self) -> bytes:
        """Its packed tree."""
        ...

    @property
    def nbytes(self) -> int:
        """Size of its buffers in bytes."""
        ...

    @property
    def pinned(self) -> _core.Object:
        """The object itself, for what the extension does with many of them at a time."""
        ...

    @property
    def buffers(self) -> Sequence[memoryview]:
        """Its buffers: contiguous bytes."""
        ...

    def close(self) -> None:
        """Unpin it. Its buffers are not used any more."""
        ...


class ObjectSource(Protocol):
    """Where a server reads the objects that its peers fetch."""

    def open(self, oid: bytes, generation: int | None) -> SourceObject:
        """Pin an object.

        Args:
            oid: its 20 bytes.
            generation: which version; None: any.

        Raises:
            ObjectNotFound: it is not here, or not this generation of it.
            ObjectLost: it was, and its bytes are gone, with the reason; CorruptData if they are damaged.
            EntrepotError: anything else that prevents reading it. The peer gets the same error.
        """
        ...

    def open_present(self, wanted: Sequence[Wanted]) -> Sequence[SourceObject | None]:
        """Pin those of several objects that can be pinned without waiting, at once; None: :meth:`open` has to do it."""
        ...


class Reception(Protocol):
    """Memory of an object that is being received."""

    @property
    def buffers(self) -> Sequence[memoryview]:
        """Writable views, as long as the lengths in the header."""
        ...

    def drop(self) -> None:
        """Give the memory back; the object is not sealed. No buffer is used any more."""
        ...


class ObjectSink(Protocol):
    """Where a fetch receives objects into."""

    def put(self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]) -> list[bool | EntrepotError]:
        """Seal small objects that have arrived together and were checked, in as few round trips as possible.

        It may wait for memory, but, as :meth:`allocate`, for less than the time limit for progress.

        Args:
            objects: each with its buffers, which are copied: they are written again after this call.

        Returns:
            for each object whether it existed, or why it was not sealed.
        """
        ...

    def allocate(self, header: ObjectHeader) -> Reception | None:
        """Provide memory for a large object, which is received in place.

        Returns:
            where to receive it; None: the object is here already, and is not received.

        Raises:
            StoreFull: there is no memory.
            EntrepotError: anything else that prevents receiving it. It becomes the object's outcome.
        """
        ...

    def commit(self, reception: Reception) -> EntrepotError | None:
        """Seal a large object whose bytes are all there and were checked.

        Returns:
            None, or why it was not sealed. The transport does not touch it afterwards.
        """
        ...


class GatewayRequests(Protocol):
    """What a server does for its peers beside sending objects."""

    def have(self, wanted: Sequence[Wanted]) -> list[Held | None]:
        """Say which of these objects are here; None: this one, or this generation of it, is not."""
        ...

    def pull(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """Fetch objects from the gateway at an address (``host:port``), whose store must be ``instance``.

        Returns:
            for each object None, or why it is not here now.
        """
        ...

    def replicate(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """As :meth:`pull`, for copies of objects that stay where they are."""
        ...

    def discard(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Delete these objects from the store; for each, whether it was there."""
        ...

    def stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request about a stream of the store; what it may ask is the gateway's."""
        ...

    def collection(self, request: dict[str, Any]) -> Any:
        """Answer a question about a collection; question and answer are plain values.

        Raises:
            EntrepotError: the answer is this error.
        """
        ...

    def discard_copies(self, lives: Sequence[Wanted], instance: str, role: int) -> list[bool]:
        """Delete copies that were made for another store.

        Args:
            lives: of what they are copies, each by ID and generation in the store ``instance``.
            role: only those that are here for this reason (``entrepot.origins.Role``).

        Returns:
            for each, whether there was such a copy.
        """
        ...
