"""What a fetch has to do: requests to be sent, large objects that arrive in pieces, small ones that arrive together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from entrepot import _core
from entrepot.errors import CorruptData, EntrepotError

from entrepot_cluster.transport.buffer_ranges import BufferRanges
from entrepot_cluster.transport.endpoints import FetchOutcome, ObjectHeader, ObjectSink, Reception
from entrepot_cluster.transport.links import Link

READ_BYTES = 4 << 20  # of a large object, in one request


@dataclass(slots=True, eq=False)
class Chunk:
    """Objects that are asked for by one request. Used by one thread at a time.

    Attributes:
        unanswered: positions in the list of the fetch that have no answer; a dictionary, for its order.
        asked: positions in the order of the last request.
        attempts: on how many connections they were asked for in vain.
    """

    unanswered: dict[int, None]
    asked: list[int] = field(default_factory=list)
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Announced:
    """A large object that has no memory yet, at this position in the list of the fetch."""

    index: int
    header: ObjectHeader


@dataclass(slots=True, eq=False)
class Transfer:
    """A large object while it is received; guarded by the fetch's lock.

    Attributes:
        index: position in the list of the fetch.
        header: the object.
        reception: its memory.
        ranges: of that memory.
        missing: bytes that have not arrived.
        asked: bytes that are, or were, in some request; those before this offset.
        pieces: how many requests have not ended.
        error: why it fails as soon as no request is under way.
        ended: whether it was sealed, or its memory given back.
    """

    index: int
    header: ObjectHeader
    reception: Reception
    ranges: BufferRanges
    missing: int
    asked: int = 0
    pieces: int = 0
    error: EntrepotError | None = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Piece:
    """A range of a large object that is asked for by one request. Used by one thread at a time.

    Attributes:
        transfer: the object.
        offset, length: the range in its buffers, one after another.
        attempts: on how many connections it was asked for in vain.
    """

    transfer: Transfer
    offset: int
    length: int
    attempts: int = 0


@dataclass(slots=True)
class WorkQueue:
    """What nobody works on yet; guarded by the fetch's lock.

    Memory is taken for one large object after another, when its first piece is about to be asked for.
    """

    chunks: deque[Chunk] = field(default_factory=deque)
    announced: deque[Announced] = field(default_factory=deque)
    transfers: deque[Transfer] = field(default_factory=deque)  # of which not everything was asked for
    again: deque[Chunk | Piece] = field(default_factory=deque)  # the connection ended on which they were asked for

    def __bool__(self) -> bool:
        return bool(self.chunks or self.announced or self.transfers or self.again)

    def requests(self) -> int:
        """About how many requests it takes."""
        large = [transfer.header.nbytes - transfer.asked for transfer in self.transfers]
        large += [announced.header.nbytes for announced in self.announced]
        return len(self.chunks) + len(self.again) + sum(-(-nbytes // READ_BYTES) for nbytes in large)

    def take(self) -> Chunk | Piece | Announced | None:
        """The next request, or the next object that needs memory."""
        if self.again:
            return self.again.popleft()
        if self.transfers:
            transfer = self.transfers[0]
            piece = Piece(transfer, transfer.asked, min(READ_BYTES, transfer.header.nbytes - transfer.asked))
            transfer.asked += piece.length
            transfer.pieces += 1
            if transfer.asked == transfer.header.nbytes:
                self.transfers.popleft()
            return piece
        if self.announced:
            return self.announced.popleft()
        return self.chunks.popleft() if self.chunks else None


class Batch:
    """Small objects that arrive together in one frame. Used by one thread.

    Args:
        sink: receives them.
    """

    def __init__(self, sink: ObjectSink) -> None:
        self._sink = sink
        self._items: list[tuple[int, ObjectHeader, int, Reception]] = []  # position, object, checksum, memory
        self._views: list[memoryview] = []  # all bytes of the frame, in their order
        self._outcomes: list[tuple[int, FetchOutcome]] = []
        self._peer = ""

    @property
    def indexes(self) -> list[int]:
        """Positions of the objects that have memory."""
        return [index for index, _, _, _ in self._items]

    def allocate(self, index: int, header: ObjectHeader, crc: int) -> None:
        """Provide memory for the frame's next object; one that the sink does not take is received and forgotten."""
        try:
            reception = self._sink.allocate(header)
        except EntrepotError as error:
            self._outcomes.append((index, FetchOutcome(header.id, header.generation, error=error)))
            reception = None
        else:
            if reception is None:
                outcome = FetchOutcome(header.id, header.generation, header.nbytes, existed=True)
                self._outcomes.append((index, outcome))
        if reception is None:
            self._views.append(memoryview(bytearray(header.nbytes)))
            return
        self._items.append((index, header, crc, reception))
        self._views += reception.buffers

    def receive(self, link: Link) -> None:
        """Receive the bytes of all objects; if the connection ends before, their memory is given back."""
        self._peer = link.peer
        try:
            link.receive_many(self._views)
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Give the memory back."""
        for _, _, _, reception in self._items:
            reception.drop()

    def commit(self) -> list[tuple[int, FetchOutcome]]:
        """Check and seal what was received; returns each object's position and outcome."""
        intact = []
        for index, header, expected, reception in self._items:
            crc = _core.crc32c(header.tree)
            for view in reception.buffers:
                crc = _core.crc32c(view, crc)
            if crc == expected:
                intact.append((index, header, reception))
                continue
            reception.drop()
            error = damaged(header, self._peer, crc, expected)
            self._outcomes.append((index, FetchOutcome(header.id, header.generation, error=error)))
        if intact:
            for (index, header, _), failed in zip(intact, self._sink.commit([item[2] for item in intact]), strict=True):
                nbytes = 0 if failed else header.nbytes
                self._outcomes.append((index, FetchOutcome(header.id, header.generation, nbytes, error=failed)))
        return self._outcomes


def damaged(header: ObjectHeader, peer: str, crc: int, expected: int) -> CorruptData:
    """The error for bytes that were changed on the way."""
    return CorruptData(
        f"bytes of object {header.id.hex()}, generation {header.generation}, arrived from {peer} with the CRC-32C "
        f"{crc:08x}, and were sent with {expected:08x}; they were thrown away"
    )
