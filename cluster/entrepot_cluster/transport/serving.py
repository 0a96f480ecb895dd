"""One connection of a server: its requests, read one after another and answered in their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from entrepot import _core
from entrepot.errors import CorruptData, EntrepotError, InvalidArgument

from entrepot_cluster.transport.buffer_ranges import BufferRanges
from entrepot_cluster.transport.compression import PackingSender
from entrepot_cluster.transport.endpoints import (
    GatewayRequests,
    Held,
    ObjectHeader,
    ObjectSource,
    SourceObject,
    Wanted,
)
from entrepot_cluster.transport.frames import (
    MAX_BUFFERS,
    MAX_TREE_BYTES,
    RECORD_BYTES,
    Kind,
    Outcome,
    field,
    pack_error,
    pack_failure,
    pack_head,
    pack_map,
    pack_record,
    parse_map,
    parse_read,
    parse_wanted,
)
from entrepot_cluster.transport.links import Link
from entrepot_cluster.transport.pins import PinnedObjects

INLINE_BYTES = 256 << 10  # an object up to this size is sent at once; a larger one is read in pieces
BATCH_BYTES = 1 << 20  # of payload, after which an OBJECTS frame is sent
BATCH_BUFFERS = 512
OPENED_AT_ONCE = 256  # objects of a request; what a client asks for in one
PIECE_BYTES = 512 << 10  # of one PIECE frame: its checksum is computed and checked while it is in the CPU's cache
MAX_READ_BYTES = 1 << 30
MAX_PULL = 4096
WORKING_SECONDS = 2.0
_OPERATIONS = ("have", "pull", "replicate", "discard", "discard_copies", "stream", "collection")


@dataclass(frozen=True, slots=True)
class Services:
    """What the connections of a server share.

    Attributes:
        source: where objects are read.
        pins: large objects that are open.
        requests: what is done beside sending objects; None: nothing.
        room_seconds: how long a request for a piece waits for others to finish sending.
        work_seconds: how long the peer is told that its request is being worked on; then the connection is cut.
    """

    source: ObjectSource
    pins: PinnedObjects
    requests: GatewayRequests | None
    room_seconds: float
    work_seconds: float


class ServerConnection:
    """Serves the requests of one peer's connection, after the handshake.

    ```
    idle ──request──▶ working ──answer──▶ sending ──last byte──▶ idle
                         │  after each 2 s: WORKING
    any ──garbage, no progress, interrupt──▶ closed
    ```

    Args:
        link: where the requests come from.
        services: of the server.
        codecs: numbers of those that answers may be packed with.
    """

    def __init__(self, link: Link, services: Services, codecs: Sequence[int] = ()) -> None:
        self._link = link
        self._packing = PackingSender(link, codecs)  # used by the serving thread
        self._services = services
        self._sending = threading.Lock()  # held while a frame is sent
        self._working_since: float | None = None  # written by the serving thread
        self._last_notice = 0.0  # when the peer last heard from us; written with _sending held

    def serve(self, idle_seconds: float) -> None:
        """Answer requests until the peer closes the connection, or sends none for ``idle_seconds``.

        Raises:
            CorruptData: the peer sent something that is no request.
            Timeout: it stopped in the middle of a request, or does not read the answer.
            StoreUnavailable: the connection broke.
        """
        while self._link.wait_readable(idle_seconds):
            frame, meta = self._link.receive_head()
            if frame.payload_bytes:
                raise CorruptData(f"the peer sent {frame.payload_bytes} bytes of payload with a request")
            if frame.kind == Kind.FETCH:
                self._fetch(frame.request, parse_wanted(meta))
            elif frame.kind == Kind.READ:
                self._read(frame.request, *parse_read(meta))
            elif frame.kind == Kind.RELEASE:
                oid, generation, _, _ = parse_read(meta)
                self._services.pins.release(oid, generation)
            elif frame.kind == Kind.CONTROL:
                self._control(frame.request, parse_map(meta))
            else:
                raise CorruptData(f"the peer sent a {frame.kind.name} frame, which is no request")

    def tell_working(self) -> None:
        """Tell the peer that its request is being worked on, if so; called from another thread now and then."""
        since, now = self._working_since, time.monotonic()
        if since is None or now - since < WORKING_SECONDS or not self._sending.acquire(blocking=False):
            return
        try:
            if self._working_since is None:
                return
            if now - since > self._services.work_seconds:
                self._link.interrupt()
            elif now - self._last_notice >= WORKING_SECONDS and self._link.has_room():
                self._last_notice = now
                self._link.send_frame(Kind.WORKING, 0)
        except EntrepotError:
            self._link.interrupt()  # the serving thread notices, and says so
        finally:
            self._sending.release()

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._working_since = time.monotonic()
        try:
            yield
        finally:
            self._working_since = None

    def _send(self, buffers: Sequence[bytes | memoryview]) -> None:
        with self._sending:
            self._link.send(buffers)

    def _fetch(self, request: int, wanted: Sequence[Wanted]) -> None:
        batch = _Batch()
        try:
            for begin in range(0, len(wanted), OPENED_AT_ONCE):
                part = wanted[begin : begin + OPENED_AT_ONCE]
                with self._working():
                    present = self._services.source.open_present(part)
                for index, (item, opened) in enumerate(zip(part, present, strict=True), begin):
                    if opened is None:
                        self._open(index, item, batch)
                    else:
                        batch.add(index, item.id, opened)
                    if batch.full:
                        self._send_batch(batch, request, last=False)
            self._send_batch(batch, request, last=True)
        finally:
            batch.clear()

    def _open(self, index: int, item: Wanted, batch: _Batch) -> None:
        """Open an object for which that may take a while."""
        try:
            with self._working():
                opened = self._services.source.open(item.id, item.generation)
        except EntrepotError as error:
            batch.add_failure(index, error)
        else:
            batch.add(index, item.id, opened)

    def _send_batch(self, batch: _Batch, request: int, *, last: bool) -> None:
        """Send an OBJECTS frame, and unpin what was sent."""
        meta, crc = batch.describe()
        packing, nbytes = self._packing, batch.nbytes
        views = [view for each in batch.inline for view in each.buffers] if packing.may_pack(nbytes) else []
        if views and (packed := packing.pack(views, nbytes, crc)):
            prefix, payload = packed
            head = pack_head(Kind.OBJECTS, request, prefix + meta, last=last, packed=True, payload_bytes=payload.nbytes)
            self._send([head, payload])
        else:
            head = pack_head(Kind.OBJECTS, request, meta, last=last, payload_bytes=nbytes)
            with self._sending:
                self._link.send_objects(head, batch.inline)
        batch.clear()

    def _read(self, request: int, oid: bytes, generation: int, offset: int, length: int) -> None:
        services = self._services
        try:
            with self._working():
                reading = services.pins.reading(oid, generation, services.room_seconds)
                opened = reading.__enter__()
        except EntrepotError as error:
            self._send([pack_head(Kind.ERROR, request, pack_error(error), last=True)])
            return
        try:
            total = sum(buffer.nbytes for buffer in opened.buffers)
            if not 0 < length <= MAX_READ_BYTES or offset + length > total:
                raise CorruptData(
                    f"the peer asked for {length} bytes at {offset} of an object of {total}; at most {MAX_READ_BYTES}"
                )
            ranges = BufferRanges(opened.buffers)
            end = offset + length
            while offset < end:
                size = min(PIECE_BYTES, end - offset)
                views = ranges.views(offset, size)
                crc = 0
                for view in views:
                    crc = _core.crc32c(view, crc)
                offset += size
                last = offset == end
                if packed := self._packing.pack(views, size, crc):
                    prefix, payload = packed
                    head = pack_head(Kind.PIECE, request, prefix, last=last, packed=True, payload_bytes=payload.nbytes)
                    self._send([head, payload])
                else:
                    head = pack_head(Kind.PIECE, request, last=last, payload_bytes=size, payload_crc=crc)
                    self._send([head, *views])
        finally:
            reading.__exit__(None, None, None)

    def _control(self, request: int, message: dict[str, Any]) -> None:
        try:
            with self._working():
                answer = self._answer(message)
        except CorruptData:
            raise
        except EntrepotError as error:
            self._send([pack_head(Kind.ERROR, request, pack_error(error), last=True)])
        else:
            self._send([pack_head(Kind.REPLY, request, pack_map(answer), last=True)])

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        operation = field(message, "op", str)
        if operation == "ping":
            return {}
        requests = self._services.requests
        if requests is None or operation not in _OPERATIONS:
            raise InvalidArgument(f"this gateway knows no request {operation!r}")
        if operation == "stream":
            return requests.stream(message)
        if operation == "collection":
            return {"value": requests.collection(field(message, "request", dict))}
        wanted = parse_wanted(field(message, "wanted", bytes))
        if operation == "have":
            return {"held": [_held(item) for item in requests.have(wanted)]}
        if operation == "discard":
            return {"discarded": requests.discard(wanted)}
        instance = field(message, "instance", str)
        if operation == "discard_copies":
            return {"discarded": requests.discard_copies(wanted, instance, field(message, "role", int))}
        if len(wanted) > MAX_PULL:
            raise InvalidArgument(f"{len(wanted)} objects to {operation} in one request; at most {MAX_PULL}")
        perform = requests.pull if operation == "pull" else requests.replicate
        outcomes = perform(wanted, field(message, "address", str), instance)
        return {"errors": [None if error is None else pack_error(error) for error in outcomes]}


def _held(item: Held | None) -> list[int] | None:
    return None if item is None else [item.generation, item.nbytes]


class _Batch:
    """Objects of the next OBJECTS frame.

    Attributes:
        inline: those whose bytes are in the frame, in their order.
        nbytes: how many these are.
    """

    def __init__(self) -> None:
        self.inline: list[SourceObject] = []
        self.nbytes = 0
        self._items: list[tuple[int, _core.Object, bytes]] = []  # the same as inline, for their records
        self._records: list[bytes] = []  # of the other objects
        self._meta_bytes = 0
        self._buffers = 0

    @property
    def full(self) -> bool:
        """Whether it should be sent before anything else is added."""
        return self.nbytes >= BATCH_BYTES or self._buffers >= BATCH_BUFFERS or self._meta_bytes >= BATCH_BYTES

    def add(self, index: int, oid: bytes, opened: SourceObject) -> None:
        tree, pinned, nbytes = opened.tree, opened.pinned, opened.nbytes
        count = pinned.buffer_count
        if len(tree) > MAX_TREE_BYTES or count > MAX_BUFFERS:
            opened.close()
            error = InvalidArgument(
                f"the metadata of object {oid.hex()}, {len(tree)} bytes and {count} buffers, is too large to be "
                f"sent; at most {MAX_TREE_BYTES} and {MAX_BUFFERS}"
            )
            self.add_failure(index, error)
        elif nbytes > INLINE_BYTES:
            lengths = tuple([buffer.nbytes for buffer in opened.buffers])
            opened.close()
            self._add_record(pack_record(index, Outcome.LARGE, ObjectHeader(oid, opened.generation, tree, lengths), 0))
        else:
            self.inline.append(opened)
            self._items.append((index, pinned, tree))
            self._buffers += count
            self._meta_bytes += RECORD_BYTES + 8 * count + len(tree)
            self.nbytes += nbytes

    def add_failure(self, index: int, error: EntrepotError) -> None:
        self._add_record(pack_failure(index, error))

    def describe(self) -> tuple[bytes, int]:
        """The records of all objects, and the CRC-32C of the payload."""
        inline, crc = _core.pack_inline_records(self._items, 0)
        return b"".join([*self._records, inline]), crc

    def clear(self) -> None:
        """Unpin what was sent."""
        for opened in self.inline:
            opened.close()
        self.inline, self._items, self._records = [], [], []
        self.nbytes = self._meta_bytes = self._buffers = 0

    def _add_record(self, record: bytes) -> None:
        self._records.append(record)
        self._meta_bytes += len(record)
