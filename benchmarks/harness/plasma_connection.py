"""A Plasma client in a few lines, without pyarrow 11 or ``flatc``: for measurements, and for the soak in tests/soak.

Messages are FlatBuffers; their tables are those of core/src/plasma/plasma.fbs. Every field that is sent gets eight
bytes of its table, which is more than most need, and valid.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HEADER = struct.Struct("<qqq")  # version, type, length of the body
CREATE, CREATE_AND_SEAL, ABORT, SEAL, GET = 1, 3, 5, 7, 9
RELEASE, DELETE, CONTAINS, CONNECT, EVICT, SUBSCRIBE = 11, 13, 15, 19, 21, 23
SET_OPTIONS, DEBUG_STRING, UNKNOWN = 28, 30, 99
OK, EXISTS, NONEXISTENT, OUT_OF_MEMORY, NOT_SEALED, IN_USE = range(6)
NOT_THERE = (1 << 64) - 1
PLACE = struct.Struct("<i4xQQQQi4x")
DIGEST = b"digest--"
REPLY_SECONDS = 40.0  # longer than the front end waits for memory, and than a daemon is stopped

Field = bytes | int | Sequence[bytes]


class NoReply(Exception):
    """The front end holds the connection and does not answer."""


class OutOfMemory(Exception):
    """There is no room for an object."""


class ObjectExists(Exception):
    """The ID is in use."""


def _text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value + bytes(1 + -(len(value) + 1) % 8 + 4)


def table(*fields: Field) -> bytes:
    """A table with these fields, numbers and strings and vectors of strings, as the root of a message."""
    vtable = struct.pack(
        f"<{2 + len(fields)}H", 4 + 2 * len(fields), 8 * (len(fields) + 1), *(8 * (i + 1) for i in range(len(fields)))
    )
    start = (4 + len(vtable) + 7) // 8 * 8  # of the table; the vtable is behind the root's offset
    slots = [struct.pack("<i4x", start - 4)]
    tail = b""
    end = start + 8 * (len(fields) + 1)
    for i, field in enumerate(fields):
        if isinstance(field, int):
            slots.append(struct.pack("<q", field))
            continue
        slots.append(struct.pack("<I4x", end + len(tail) - (start + 8 * (i + 1))))
        tail += _text(field) if isinstance(field, bytes) else _texts(field)
    return struct.pack("<I", start) + vtable.ljust(start - 4, b"\0") + b"".join(slots) + tail


def _texts(values: Sequence[bytes]) -> bytes:
    head_bytes = (4 + 4 * len(values) + 7) // 8 * 8
    offsets, texts = [], b""
    for i, value in enumerate(values):
        offsets.append(head_bytes + len(texts) - (4 + 4 * i))
        texts += _text(value)
    return struct.pack(f"<{1 + len(values)}I", len(values), *offsets).ljust(head_bytes, b"\0") + texts


class Table:
    """The root table of a message that was received."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        (self._start,) = struct.unpack_from("<I", body)
        (back,) = struct.unpack_from("<i", body, self._start)
        self._vtable = self._start - back
        (self._vtable_bytes,) = struct.unpack_from("<H", body, self._vtable)

    def _at(self, number: int) -> int:
        """Position of a field; 0: it has its default."""
        entry = 4 + 2 * number
        if entry >= self._vtable_bytes:
            return 0
        (offset,) = struct.unpack_from("<H", self._body, self._vtable + entry)
        return self._start + offset if offset else 0

    def number(self, number: int, code: str) -> int:
        at = self._at(number)
        return int(struct.unpack_from("<" + code, self._body, at)[0]) if at else 0

    def text(self, number: int) -> str:
        at = self._at(number)
        at += struct.unpack_from("<I", self._body, at)[0]
        (length,) = struct.unpack_from("<I", self._body, at)
        return self._body[at + 4 : at + 4 + length].decode()

    def place(self, number: int) -> tuple[int, ...]:
        return PLACE.unpack_from(self._body, self._at(number))

    def vector(self, number: int, item: struct.Struct) -> list[tuple[int, ...]]:
        at = self._at(number)
        at += struct.unpack_from("<I", self._body, at)[0]
        (count,) = struct.unpack_from("<I", self._body, at)
        first = (at + 4 + 7) // 8 * 8 if item is PLACE else at + 4
        return [item.unpack_from(self._body, first + i * item.size) for i in range(count)]


class PlasmaConnection:
    """One connection; it fails for good with an ``OSError`` when the front end dies.

    Args:
        path: the front end's socket.
        wait_seconds: how long to try again while nobody answers there.
    """

    def __init__(self, path: Path, wait_seconds: float = 30.0) -> None:
        self._segments: dict[int, mmap.mmap] = {}
        end = time.monotonic() + wait_seconds
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(REPLY_SECONDS)
            try:
                self._socket.connect(str(path))
                self._ask(CONNECT, table())
                return
            except OSError:  # it has died, or dies now
                self._socket.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def server_pid(self) -> int:
        """The process that serves this connection."""
        return int(struct.unpack("<3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])

    def close(self) -> None:
        """Hang up; values stay readable as long as they are referenced."""
        self._socket.close()
        self._segments.clear()

    def wait_closed(self) -> None:
        """Wait until the front end has closed the connection, or has died."""
        try:
            while self._socket.recv(1 << 12):
                pass
        except ConnectionResetError:
            pass

    def create(self, oid: bytes, data_bytes: int, metadata_bytes: int) -> memoryview:
        """Create an object; return its writable bytes, data and then metadata.

        Raises:
            ObjectExists: the ID is in use.
            OutOfMemory: there is no room.
        """
        self.begin_create(oid, data_bytes, metadata_bytes)
        return self.end_create(data_bytes + metadata_bytes)

    def begin_create(self, oid: bytes, data_bytes: int, metadata_bytes: int) -> None:
        """Ask for an object to be created, without waiting for that."""
        self._send(CREATE, table(oid, 1, data_bytes, metadata_bytes, 0))

    def end_create(self, nbytes: int) -> memoryview:
        """Wait for the answer to :meth:`begin_create`; as for :meth:`create`."""
        reply = self._answer(CREATE)
        _check(reply.number(2, "i"))
        segment, offset, *_ = reply.place(1)
        self._take_segment(segment, reply.number(4, "q"))
        return memoryview(self._segments[segment])[offset : offset + nbytes]

    def seal(self, oid: bytes) -> None:
        """Seal an object; it stays held."""
        self.begin_seal(oid)
        self.end_seal()

    def begin_seal(self, oid: bytes) -> None:
        """Ask for an object to be sealed, without waiting for that."""
        self._send(SEAL, table(oid, DIGEST))

    def end_seal(self) -> None:
        """Wait for the answer to :meth:`begin_seal`."""
        _check(self._answer(SEAL).number(1, "i"))

    def create_and_seal(self, oid: bytes, data: bytes, metadata: bytes) -> None:
        """Put a whole object by one message."""
        self.begin_create_and_seal(oid, data, metadata)()
        self.end_create_and_seal()

    def begin_create_and_seal(self, oid: bytes, data: bytes, metadata: bytes) -> Callable[[], None]:
        """Send half of the message that puts a whole object; return what sends the rest."""
        body = table(oid, 1, data, metadata, DIGEST)
        message = HEADER.pack(0, CREATE_AND_SEAL, len(body)) + body
        half = len(message) // 2
        self._socket.sendall(message[:half])
        return lambda: self._socket.sendall(message[half:])

    def end_create_and_seal(self) -> None:
        """Wait for the answer to that message."""
        _check(self._answer(CREATE_AND_SEAL).number(0, "i"))

    def abort(self, oid: bytes) -> None:
        """Drop an object that this client has created."""
        self._ask(ABORT, table(oid))

    def get(self, oids: Sequence[bytes], timeout_ms: int) -> list[tuple[memoryview, memoryview] | None]:
        """Data and metadata of objects, which are held from now on; None for those that were not there in time."""
        self.begin_get(oids, timeout_ms)
        return self.end_get()

    def begin_get(self, oids: Sequence[bytes], timeout_ms: int) -> None:
        """Ask for objects, without waiting for them."""
        self._send(GET, table(list(oids), timeout_ms))

    def end_get(self) -> list[tuple[memoryview, memoryview] | None]:
        """Wait for the answer to :meth:`begin_get`; as for :meth:`get`."""
        reply = self._answer(GET)
        sizes = {
            segment: size
            for (segment,), (size,) in zip(
                reply.vector(2, struct.Struct("<i")), reply.vector(3, struct.Struct("<q")), strict=True
            )
        }
        values: list[tuple[memoryview, memoryview] | None] = []
        places = reply.vector(1, PLACE)
        for segment, _, data_bytes, *_ in places:
            if data_bytes != NOT_THERE:
                self._take_segment(segment, sizes[segment])
        for segment, offset, data_bytes, metadata_offset, metadata_bytes, _ in places:
            if data_bytes == NOT_THERE:
                values.append(None)
                continue
            view = memoryview(self._segments[segment]).toreadonly()
            data, metadata = (
                view[offset : offset + data_bytes],
                view[metadata_offset : metadata_offset + metadata_bytes],
            )
            values.append((data, metadata))
        return values

    def release(self, oid: bytes) -> None:
        """Hold an object no longer."""
        self._send(RELEASE, table(oid))

    def delete(self, oid: bytes) -> int:
        """Delete an object; return the error, of which IN_USE means that it will be gone later."""
        reply = self._ask(DELETE, table(1, [oid]))
        return reply.vector(2, struct.Struct("<i"))[0][0]

    def contains(self, oid: bytes) -> bool:
        """Whether there is an object with this ID."""
        return bool(self._ask(CONTAINS, table(oid)).number(1, "B"))

    def evict(self, nbytes: int) -> int:
        """Have so many bytes leave the arena; return how many did."""
        return self._ask(EVICT, table(nbytes)).number(0, "Q")

    def subscribe(self) -> socket.socket:
        """Subscribe to what is sealed and deleted; return the socket from which notifications are to be read."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._send(SUBSCRIBE, table())
            socket.send_fds(self._socket, [b"\0"], [theirs.fileno()])
        return ours

    def wait_for_answer(self) -> None:
        """Wait until the answer to a request begins to arrive, without reading it."""
        if not self._socket.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the front end has closed the connection")

    def set_options(self, name: bytes, quota_bytes: int) -> int:
        """Say what this client is called and how much it may occupy (0: no limit); return the error."""
        return self._ask(SET_OPTIONS, table(name, quota_bytes)).number(0, "i")

    def debug_text(self) -> str:
        """What the front end says of its objects."""
        return self._ask(DEBUG_STRING, table()).text(0)

    def overwrite_everything(self) -> None:
        """Overwrite all memory that this client was given, which Plasma does not prevent."""
        for segment in self._segments.values():
            segment[:] = bytes(len(segment))

    def misbehave(self) -> None:
        """Send what no client may send, and wait until the front end has hung up."""
        self._send(UNKNOWN, b"")
        self.wait_closed()

    def _send(self, kind: int, body: bytes) -> None:
        self._socket.sendall(HEADER.pack(0, kind, len(body)) + body)

    def _ask(self, kind: int, body: bytes) -> Table:
        self._send(kind, body)
        return self._answer(kind)

    def _answer(self, kind: int) -> Table:
        try:
            version, received, length = HEADER.unpack(self._exactly(HEADER.size))
            assert (version, received) == (0, kind + 1), f"a reply of type {received} to a request of type {kind}"
            return Table(self._exactly(length))
        except TimeoutError:
            raise NoReply(f"no reply to a request of type {kind} within {REPLY_SECONDS} s") from None

    def _exactly(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            # A socket with a timeout does not block, so MSG_WAITALL returns what there is, too.
            part = self._socket.recv(length - len(received))
            if not part:
                raise ConnectionResetError("the front end has closed the connection")
            received += part
        return bytes(received)

    def _take_segment(self, segment: int, nbytes: int) -> None:
        if segment in self._segments:
            return
        data, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not data:
            raise ConnectionResetError("the front end has closed the connection")
        (descriptor,) = descriptors
        self._segments[segment] = mmap.mmap(descriptor, nbytes)
        os.close(descriptor)


def _check(error: int) -> None:
    if error == EXISTS:
        raise ObjectExists("the ID is in use")
    if error == OUT_OF_MEMORY:
        raise OutOfMemory("there is no room for the object")
    assert error == OK, f"error {error}"
