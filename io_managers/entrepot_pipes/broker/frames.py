"""Lines of JSON and frames of data on a connection."""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from entrepot.errors import EntrepotError

PROTOCOL = 1
MAX_LINE_BYTES = 64 << 10
MAX_FRAME_BYTES = 16 << 20
_SENT_FRAME_BYTES = 1 << 20
_FAILURE = 0xFFFFFFFF
_LENGTH = struct.Struct(">I")


class ProtocolError(EntrepotError, ValueError):
    """What came through the connection does not follow the protocol."""

    code = "protocol_error"
    short_code = "E412"


class ConnectionEnded(EntrepotError, ConnectionError):
    """The connection ended where the protocol does not allow it: the program died."""

    code = "connection_ended"
    short_code = "E413"


class PeerFailed(EntrepotError):
    """The program said that it gave up."""

    code = "peer_failed"
    short_code = "E414"


class FrameSocket:
    """A connection, with what was received and not used yet. For one thread at a time, except ``shut_down``."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._input = connection.makefile("rb", buffering=1 << 16)

    def read_line(self) -> dict[str, Any]:
        """One line of JSON, an object.

        Raises:
            ProtocolError: the line is too long, or something else.
            ConnectionEnded: it ends before.
        """
        line = self._input.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(f"a line of more than {MAX_LINE_BYTES:,} bytes")
        if not line.endswith(b"\n"):
            raise ConnectionEnded("the connection ended before its first line")
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the first line is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise ProtocolError(f"the first line is a {type(value).__name__}, and not a JSON object")
        return value

    def frames(self) -> Iterator[bytes]:
        """The payloads until the complete end.

        Raises:
            PeerFailed: the program gave up.
            ProtocolError: a frame that is too long.
            ConnectionEnded: the connection ended before.
        """
        while (length := self._read_length()) != 0:
            if length == _FAILURE:
                reason = self._read(min(self._read_length(), MAX_LINE_BYTES))
                raise PeerFailed(reason.decode(errors="replace"))
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length:,} bytes; at most {MAX_FRAME_BYTES:,} are allowed")
            yield self._read(length)

    def send_line(self, value: dict[str, Any]) -> None:
        """Send an object as one line of JSON."""
        self._socket.sendall(json.dumps(value).encode() + b"\n")

    def send_data(self, data: bytes | memoryview) -> None:
        """Send data, in frames."""
        view = memoryview(data)
        for start in range(0, len(view), _SENT_FRAME_BYTES):
            part = view[start : start + _SENT_FRAME_BYTES]
            self._socket.sendall(_LENGTH.pack(len(part)))
            self._socket.sendall(part)

    def send_end(self) -> None:
        """Send the complete end."""
        self._socket.sendall(_LENGTH.pack(0))

    def send_failure(self, reason: str) -> None:
        """Send a failure instead of an end."""
        text = reason.encode()[:MAX_LINE_BYTES]
        self._socket.sendall(_LENGTH.pack(_FAILURE) + _LENGTH.pack(len(text)) + text)

    def close(self, drain_seconds: float = 0.0) -> None:
        """Close it. What the program still sends is read for a while, so that it gets the last answer and no reset."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            if drain_seconds:
                self._socket.settimeout(drain_seconds)
                for _ in range(64):
                    if not self._socket.recv(1 << 20):
                        break
        except OSError:
            pass  # the program is gone
        finally:
            self._input.close()
            self._socket.close()

    def _read_length(self) -> int:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return int(length)

    def _read(self, length: int) -> bytes:
        data: bytes = self._input.read(length)
        if len(data) < length:
            raise ConnectionEnded("the connection ended in the middle of the data")
        return data


class FrameInput(io.RawIOBase):
    """The payloads of a connection's frames, as a file."""

    def __init__(self, connection: FrameSocket) -> None:
        self._frames = connection.frames()
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; none at the complete end."""
        while not self._left:
            payload = next(self._frames, None)
            if payload is None:
                return 0
            self._left = memoryview(payload)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class FrameOutput(io.RawIOBase):
    """A file whose bytes are sent as frames."""

    def __init__(self, connection: FrameSocket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """Send all of it."""
        view = memoryview(data).cast("B")
        self._connection.send_data(view)
        return len(view)
