"""What a fetch has to do: requests to be sent, large objects that arrive in pieces, small ones that arrive together."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from entrepot import _core
from entrepot.errors import CorruptData, EntrepotError

from entrepot_cluster.transport.buffer_ranges import BufferRanges
from entrepot_cluster.transport.compression import unpack
from entrepot_cluster.transport.endpoints import ObjectHeader, ObjectSink, Reception
from entrepot_cluster.transport.frames import Frame
from entrepot_cluster.transport.links import Link

READ_BYTES = 4 << 20  # of a large object, in one request
# At most as many threads receive small objects, because that takes the interpreter's lock more than it waits for bytes:
# on two cores, where the stores and the sender also run, a second thread makes it slower.
SMALL_THREADS = max(1, min(2, len(os.sched_getaffinity(0)) // 2))


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

    def usable_threads(self) -> int:
        """How many threads could be at work on it."""
        large = [transfer.header.nbytes - transfer.asked for transfer in self.transfers]
        large += [announced.header.nbytes for announced in self.announced]
        return (
            min(len(self.chunks), SMALL_THREADS) + len(self.again) + sum(-(-nbytes // READ_BYTES) for nbytes in large)
        )

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


class Arriving(NamedTuple):
    """A small object whose bytes follow.

    Attributes:
        position: in the list of the fetch.
        header: the object.
        crc: CRC-32C of the bytes of the frame up to the object's end.
    """

    position: int
    header: ObjectHeader
    crc: int


class Batch:
    """Receives small objects, those of one frame after another. Used by one thread; its memory is used again.

    They arrive in private memory, are checked there, while they are in the CPU's cache, and are then copied by the
    sink, many in one step. Receiving each into memory of its own would take longer than this copy.

    Args:
        sink: what they are put into.
    """

    def __init__(self, sink: ObjectSink) -> None:
        self._sink = sink
        self._memory = memoryview(b"")

    def receive(
        self, link: Link, arriving: Sequence[Arriving], frame: Frame, meta: bytearray
    ) -> list[bool | EntrepotError]:
        """Receive, check and put the objects of a frame.

        Args:
            link: where the bytes come from.
            arriving: the objects, in the order of their bytes.
            frame, meta: whose payload they are.

        Returns:
            for each object whether it existed, or why it was not put.

        Raises:
            Timeout, StoreUnavailable: the connection ended before everything had arrived; nothing was put.
            CorruptData: a packed payload was changed on the way; nothing was put.
        """
        payload = self.payload(link, frame, meta)
        if not arriving:
            return []
        errors: dict[int, EntrepotError] = {}
        if _core.crc32c(payload) != arriving[-1].crc:
            errors = self._find_damaged(link, arriving, payload)
        objects = []
        offset = 0
        for position, (_, header, _) in enumerate(arriving):
            buffers = []
            for length in header.lengths:
                buffers.append(payload[offset : offset + length])
                offset += length
            if position not in errors:
                objects.append((header, buffers))
        results = iter(self._sink.put(objects)) if objects else iter(())
        return [errors[position] if position in errors else next(results) for position in range(len(arriving))]

    def payload(self, link: Link, frame: Frame, meta: bytearray) -> memoryview:
        """Receive a frame's payload, unpack it if it is packed, and return it; valid until the next call.

        Raises:
            Timeout, StoreUnavailable: the connection ended before everything had arrived.
            CorruptData: a packed payload was changed on the way.
        """
        nbytes = frame.payload_bytes
        if len(self._memory) < nbytes:
            self._memory = memoryview(bytearray(nbytes))
        received = self._memory[:nbytes]
        link.receive(received)
        return unpack(meta, received) if frame.packed else received

    def _find_damaged(self, link: Link, arriving: Sequence[Arriving], payload: memoryview) -> dict[int, EntrepotError]:
        """Which of the objects were changed on the way: each has the checksum of all bytes up to its end."""
        errors: dict[int, EntrepotError] = {}
        offset = before = 0
        for position, (_, header, expected) in enumerate(arriving):
            end = offset + header.nbytes
            crc = _core.crc32c(payload[offset:end], before)
            if crc != expected:
                errors[position] = damaged(header, link.peer, crc, expected)
            offset, before = end, expected
        return errors


def damaged(header: ObjectHeader, peer: str, crc: int, expected: int) -> CorruptData:
    """The error for bytes that were changed on the way."""
    return CorruptData(
        f"bytes of object {header.id.hex()}, generation {header.generation}, arrived from {peer} with the CRC-32C "
        f"{crc:08x}, and were sent with {expected:08x}; they were thrown away"
    )
