"""Fetching objects from a peer: small ones many at a time, large ones in pieces over several connections."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from entrepot import _core
from entrepot.errors import CorruptData, EntrepotError, StoreUnavailable, Timeout

from entrepot_cluster.transport.buffer_ranges import BufferRanges, copy_into
from entrepot_cluster.transport.compression import PREFIX_BYTES, unpacked_bytes
from entrepot_cluster.transport.endpoints import FetchOutcome, ObjectSink, Wanted
from entrepot_cluster.transport.frames import (
    Frame,
    Kind,
    Outcome,
    Record,
    checked_id,
    pack_read,
    pack_wanted,
    parse_error,
    parse_records,
)
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.work import Announced, Arriving, Batch, Chunk, Piece, Transfer, WorkQueue, damaged

CHUNK_OBJECTS = 256  # in one request
REQUESTS_AHEAD = 2  # on each connection: while the answer to one arrives, the peer has the next
ATTEMPTS = 2


def fetch(
    peer: PeerConnections, wanted: Sequence[Wanted], sink: ObjectSink, *, timeout: float | None = None
) -> list[FetchOutcome]:
    """Fetch objects from a peer into a sink.

    Args:
        peer: where they are.
        wanted: any number; each has an outcome by itself.
        sink: receives them.
        timeout: for all of them together, in seconds; default: as long as there is progress.

    Returns:
        the outcome of each, in the order of ``wanted``: ``ObjectNotFound`` or ``ObjectLost`` as the peer says,
        ``CorruptData`` if bytes were changed on the way, ``StoreFull`` and others as the sink says,
        ``StoreUnavailable``, ``Timeout`` or ``AccessDenied`` for what could not be fetched because of the peer.

    Raises:
        InvalidArgument: an ID does not have 20 bytes.
    """
    work = Fetch(peer, wanted, sink)
    if timeout is None:
        return work.run()
    error = Timeout(f"{len(wanted)} objects have not arrived from the gateway at {peer.address} in {timeout:g} s")
    watchdog = threading.Timer(timeout, work.cancel, (error,))
    watchdog.daemon = True
    watchdog.start()
    try:
        return work.run()
    finally:
        watchdog.cancel()


class Fetch:
    """One fetch; see :func:`fetch`. :meth:`run` is called once, :meth:`cancel` from any thread.

    Each object takes this way:

    ```
    asked for ──bytes in the answer──▶ received ──checksum──▶ sealed
        │                                 ▲
        └──announced ──memory──▶ read in pieces, over all connections
    any ──error of peer or sink, wrong checksum, cancelled──▶ failed; its memory is given back
    ```

    A connection that ends is replaced, and what was asked for on it is asked for once more.

    Args:
        peer: where the objects are.
        wanted: which.
        sink: receives them.
        on_outcome: called with the position and outcome of each object as soon as it is known, by the thread that
            received it.
    """

    def __init__(
        self,
        peer: PeerConnections,
        wanted: Sequence[Wanted],
        sink: ObjectSink,
        on_outcome: Callable[[int, FetchOutcome], None] | None = None,
    ) -> None:
        for item in wanted:
            checked_id(item.id)
        self._peer = peer
        self._wanted = list(wanted)
        self._sink = sink
        self._on_outcome = on_outcome
        self._lock = threading.Lock()
        self._outcomes: list[FetchOutcome | None] = [None] * len(wanted)  # each is written once
        self._queue = WorkQueue()  # guarded by _lock
        self._links: set[Link] = set()  # in use; guarded by _lock
        self._helpers: list[threading.Thread] = []  # that were started; guarded by _lock
        self._working = 0  # threads; guarded by _lock
        self._cancelled: EntrepotError | None = None  # guarded by _lock
        self._crash: BaseException | None = None  # what no outcome can hold; guarded by _lock
        for start in range(0, len(wanted), CHUNK_OBJECTS):
            indexes = range(start, min(start + CHUNK_OBJECTS, len(wanted)))
            self._queue.chunks.append(Chunk(dict.fromkeys(indexes)))

    def run(self) -> list[FetchOutcome]:
        """Fetch everything; returns when the last object has its outcome and no thread is at work any more."""
        with self._lock:
            self._working += 1
        self._start_helpers()
        try:
            while True:
                self._work_as_main()
                self._join_helpers()
                with self._lock:
                    if not self._queue and not self._helpers:
                        break
        except BaseException:
            self.cancel()
            self._join_helpers()
            raise
        if self._crash is not None:
            raise self._crash
        left = self._cancelled or StoreUnavailable(f"the gateway at {self._peer.address} did not send the object")
        return [
            outcome or FetchOutcome(item.id, error=left)
            for item, outcome in zip(self._wanted, self._outcomes, strict=True)
        ]

    def cancel(self, error: EntrepotError | None = None) -> None:
        """End the fetch: what has not been received fails, with ``error`` or a ``Timeout``."""
        reason = error or Timeout(f"the fetch from the gateway at {self._peer.address} was cancelled")
        with self._lock:
            if self._cancelled is None:
                self._cancelled = reason
            links, queue, self._queue = list(self._links), self._queue, WorkQueue()
        for link in links:
            link.interrupt()
        for transfer in queue.transfers:
            self._fail(transfer, reason)
        for work in queue.again:
            if isinstance(work, Piece):
                self._end_piece(work, reason)

    # Threads

    def _work_as_main(self) -> None:
        """Work until nothing is left that no other thread has begun."""
        while True:
            with self._lock:
                if not self._queue:
                    return
            try:
                link = self._peer.acquire()
                assert link is not None
            except EntrepotError as error:
                self.cancel(error)
                return
            self._work(link)

    def _work_as_helper(self) -> None:
        try:
            link = self._peer.acquire(wait=False)
            if link is not None:
                self._work(link)
        except EntrepotError:
            pass  # the main thread goes on, and tells if it cannot connect either
        except BaseException as error:
            with self._lock:
                self._crash = error
            self.cancel()
        finally:
            with self._lock:
                self._working -= 1

    def _start_helpers(self) -> None:
        """Start threads if there is more to do than those at work will take."""
        with self._lock:
            if self._cancelled is not None:
                return
            for _ in range(min(self._peer.connections - self._working, self._queue.usable_threads() - 1)):
                helper = threading.Thread(target=self._work_as_helper, name="gateway-fetch", daemon=True)
                self._helpers.append(helper)
                self._working += 1
                helper.start()

    def _join_helpers(self) -> None:
        with self._lock:
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.join()  # its waits have time limits

    def _work(self, link: Link) -> None:
        """Send requests and receive answers on a connection until there is nothing more to ask for."""
        under_way: deque[tuple[int, Chunk | Piece]] = deque()
        batch = Batch(self._sink)
        with self._lock:
            self._links.add(link)
            if self._cancelled is not None:
                link.interrupt()
        number = 0
        error: EntrepotError | None = StoreUnavailable("the fetch ended by an error of this process")
        try:
            while True:
                while len(under_way) < REQUESTS_AHEAD and (work := self._take()) is not None:
                    number += 1
                    under_way.append((number, work))
                    self._ask(link, number, work)
                if not under_way:
                    break
                request, work = under_way[0]
                if isinstance(work, Chunk):
                    self._receive_chunk(link, request, work, batch)
                else:
                    self._receive_piece(link, request, work, batch)
                under_way.popleft()
            error = None
        except EntrepotError as failed:
            error = failed
        finally:
            with self._lock:
                self._links.discard(link)
            self._peer.release(link, reusable=error is None)
            if error is not None:
                self._give_back([work for _, work in under_way], error)

    def _take(self) -> Chunk | Piece | None:
        """What to ask for next; None: nothing at present."""
        while True:
            with self._lock:
                work = self._queue.take()
            if isinstance(work, Announced):
                self._begin(work)
            elif isinstance(work, Piece) and work.transfer.error is not None:
                self._end_piece(work)
            else:
                return work

    def _give_back(self, works: list[Chunk | Piece], error: EntrepotError) -> None:
        """What was asked for on a connection that ended: ask once more, unless that would not help."""
        if not isinstance(error, (StoreUnavailable, CorruptData)):
            self.cancel(error)  # a peer that is silent, or refuses, does so on its other connections too
        for position, work in enumerate(works):
            work.attempts += 1
            hopeless = work.attempts >= ATTEMPTS or (position == 0 and isinstance(error, CorruptData))
            with self._lock:
                if not hopeless and self._cancelled is None:
                    self._queue.again.append(work)
                    continue
                reason = self._cancelled or error
            if isinstance(work, Piece):
                self._end_piece(work, reason)
            else:
                for index in work.unanswered:
                    self._settle(index, FetchOutcome(self._wanted[index].id, error=reason))

    # Requests and answers

    def _ask(self, link: Link, request: int, work: Chunk | Piece) -> None:
        if isinstance(work, Chunk):
            work.asked = list(work.unanswered)
            meta = pack_wanted([self._wanted[index] for index in work.asked])
            link.send_frame(Kind.FETCH, request, meta)
        else:
            header = work.transfer.header
            link.send_frame(Kind.READ, request, pack_read(header.id, header.generation, work.offset, work.length))

    def _next_answer(self, link: Link, request: int, kind: Kind) -> tuple[Frame, bytearray]:
        frame, meta = link.receive_head()
        if frame.request != request or frame.kind not in (kind, Kind.ERROR):
            raise CorruptData(
                f"{link.peer} sent a {frame.kind.name} frame for request {frame.request}, and {kind.name} for request "
                f"{request} was expected"
            )
        return frame, meta

    def _receive_chunk(self, link: Link, request: int, chunk: Chunk, batch: Batch) -> None:
        wanted = [self._wanted[index] for index in chunk.asked]
        last = False
        while not last:
            frame, meta = self._next_answer(link, request, Kind.OBJECTS)
            if frame.kind == Kind.ERROR:
                raise parse_error(meta, f"{link.peer}: ")
            if frame.packed:
                records = parse_records(memoryview(meta)[PREFIX_BYTES:], wanted, unpacked_bytes(meta))
            else:
                records = parse_records(meta, wanted, frame.payload_bytes)
            self._receive_objects(link, chunk, records, frame, meta, batch)
            last = frame.last
        if chunk.unanswered:
            raise CorruptData(f"{link.peer} did not answer for {len(chunk.unanswered)} of {len(wanted)} objects")

    def _receive_objects(
        self, link: Link, chunk: Chunk, records: Sequence[Record], frame: Frame, meta: bytearray, batch: Batch
    ) -> None:
        """Receive what an OBJECTS frame describes."""
        announced: list[Announced] = []
        arriving: list[Arriving] = []
        asked, unanswered = chunk.asked, chunk.unanswered
        for number, outcome, header, crc, error in records:
            index = asked[number]
            if index not in unanswered:
                raise CorruptData(f"{link.peer} answered twice for object {self._wanted[index].id.hex()}")
            if header is None:
                del unanswered[index]
                self._settle(index, FetchOutcome(self._wanted[index].id, error=error))
            elif outcome == Outcome.LARGE:
                del unanswered[index]
                announced.append(Announced(index, header))
            else:
                arriving.append(Arriving(index, header, crc))
        if announced:
            with self._lock:
                if self._cancelled is None:
                    self._queue.announced += announced
            self._start_helpers()
        for (index, header, _), result in zip(arriving, batch.receive(link, arriving, frame, meta), strict=True):
            unanswered.pop(index, None)
            if isinstance(result, bool):
                self._settle(index, FetchOutcome(header.id, header.generation, header.nbytes, result))
            else:
                self._settle(index, FetchOutcome(header.id, header.generation, error=result))

    def _receive_piece(self, link: Link, request: int, piece: Piece, batch: Batch) -> None:
        offset, end = piece.offset, piece.offset + piece.length
        while offset < end:
            frame, meta = self._next_answer(link, request, Kind.PIECE)
            if frame.kind == Kind.ERROR:
                self._end_piece(piece, parse_error(meta, f"{link.peer}: "))
                return
            nbytes = unpacked_bytes(meta) if frame.packed else frame.payload_bytes
            if not 0 < nbytes <= end - offset or frame.last != (offset + nbytes == end):
                raise CorruptData(f"{link.peer} sent {nbytes} bytes of a range of which {end - offset} were missing")
            views = piece.transfer.ranges.views(offset, nbytes)
            if frame.packed:
                copy_into(views, batch.payload(link, frame, meta))
            else:
                link.receive_many(views)
                crc = 0
                for view in views:
                    crc = _core.crc32c(view, crc)
                if crc != frame.payload_crc:
                    raise damaged(piece.transfer.header, link.peer, crc, frame.payload_crc)
            offset += nbytes
        if self._end_piece(piece):
            header = piece.transfer.header
            link.send_frame(Kind.RELEASE, 0, pack_read(header.id, header.generation, 0, 0))

    # Large objects

    def _begin(self, announced: Announced) -> None:
        """Provide memory for a large object, and put it into the queue."""
        index, header = announced.index, announced.header
        try:
            reception = self._sink.allocate(header)
        except EntrepotError as error:
            self._settle(index, FetchOutcome(header.id, header.generation, error=error))
            return
        if reception is None:
            self._settle(index, FetchOutcome(header.id, header.generation, header.nbytes, existed=True))
            return
        transfer = Transfer(index, header, reception, BufferRanges(reception.buffers), header.nbytes)
        with self._lock:
            cancelled = self._cancelled
            if cancelled is None:
                self._queue.transfers.append(transfer)
        if cancelled is not None:
            self._fail(transfer, cancelled)
        self._start_helpers()

    def _end_piece(self, piece: Piece, error: EntrepotError | None = None) -> bool:
        """A piece has arrived, or will not; returns whether nothing of the object is under way any more."""
        transfer = piece.transfer
        with self._lock:
            transfer.pieces -= 1
            transfer.missing -= 0 if error else piece.length
        return self._fail(transfer, error) if error else self._end(transfer)

    def _fail(self, transfer: Transfer, error: EntrepotError) -> bool:
        with self._lock:
            if transfer.error is None:
                transfer.error = error
            if transfer in self._queue.transfers:
                self._queue.transfers.remove(transfer)
        return self._end(transfer)

    def _end(self, transfer: Transfer) -> bool:
        """Seal the object if it is complete, or give its memory back if it failed; not while pieces are under way."""
        with self._lock:
            if transfer.ended or transfer.pieces or (transfer.missing and transfer.error is None):
                return False
            transfer.ended = True
        header, error = transfer.header, transfer.error
        if error is None:
            error = self._sink.commit(transfer.reception)
        else:
            transfer.reception.drop()
        nbytes = 0 if error else header.nbytes
        self._settle(transfer.index, FetchOutcome(header.id, header.generation, nbytes, error=error))
        return True

    def _settle(self, index: int, outcome: FetchOutcome) -> None:
        self._outcomes[index] = outcome
        if self._on_outcome is not None:
            self._on_outcome(index, outcome)
