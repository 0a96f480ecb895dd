"""Plasma's socket protocol without Plasma's client: messages of the schema, encoded and decoded by ``flatc``."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).resolve().parents[3] / "core/src/plasma/plasma.fbs"
HEADER = struct.Struct("<qqq")  # version, type, length of the body

TYPES = {
    "CreateRequest": 1,
    "CreateReply": 2,
    "CreateAndSealRequest": 3,
    "CreateAndSealReply": 4,
    "AbortRequest": 5,
    "AbortReply": 6,
    "SealRequest": 7,
    "SealReply": 8,
    "GetRequest": 9,
    "GetReply": 10,
    "ReleaseRequest": 11,
    "DeleteRequest": 13,
    "DeleteReply": 14,
    "ContainsRequest": 15,
    "ContainsReply": 16,
    "ListRequest": 17,
    "ListReply": 18,
    "ConnectRequest": 19,
    "ConnectReply": 20,
    "EvictRequest": 21,
    "EvictReply": 22,
    "SetOptionsRequest": 28,
    "SetOptionsReply": 29,
    "DebugStringRequest": 30,
    "DebugStringReply": 31,
    "CreateAndSealBatchRequest": 32,
    "CreateAndSealBatchReply": 33,
    "RefreshLruRequest": 34,
    "RefreshLruReply": 35,
}
NAMES = {number: name for name, number in TYPES.items()}


def _flatc(*arguments: str) -> None:
    subprocess.run(["flatc", *arguments], check=True, capture_output=True, text=True, timeout=60)


def frame(name: str, **fields: Any) -> bytes:
    """A message with this table as its body; fields that are not given are left out."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "body.json"
        source.write_text(json.dumps(fields))
        _flatc("--binary", "--root-type", f"entrepot.plasma.wire.{name}", "-o", folder, str(SCHEMA), str(source))
        body = source.with_suffix(".bin").read_bytes()
    return HEADER.pack(0, TYPES[name], len(body)) + body


def decode(messages: Iterable[tuple[str, bytes]]) -> list[dict[str, Any]]:
    """Bodies with the names of their tables, decoded; fields that were left out have their defaults.

    A byte that is not UTF-8 becomes the character of the same number.
    """
    listed = list(messages)
    decoded: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in {name for name, _ in listed}:
            files = {}
            for i, (each, body) in enumerate(listed):
                if each == name:
                    files[i] = Path(folder) / f"{i}.bin"
                    files[i].write_bytes(body)
            options = ["--json", "--strict-json", "--defaults-json", "--raw-binary", "--allow-non-utf8"]
            options += ["--root-type", f"entrepot.plasma.wire.{name}", "-o", folder, str(SCHEMA), "--"]
            _flatc(*options, *(str(file) for file in files.values()))
            for i, file in files.items():
                text = re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", file.with_suffix(".json").read_text())
                decoded[i] = json.loads(text)
    return [decoded[i] for i in range(len(listed))]


def receive_piece(source: socket.socket) -> tuple[bytes, int | None] | None:
    """The next message, header included, or the byte and the descriptor that comes with it; None: the end."""
    try:
        first, descriptors, _, _ = socket.recv_fds(source, 1, 1)
        if not first:
            return None
        if descriptors:
            return first, descriptors[0]
        header = first + source.recv(HEADER.size - 1, socket.MSG_WAITALL)
    except ConnectionResetError:
        return None
    length = HEADER.unpack(header)[2]
    return header + (source.recv(length, socket.MSG_WAITALL) if length else b""), None


class WireClient:
    """A connection that sends what it is told to."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, name: str, **fields: Any) -> None:
        """Send a message, without waiting for anything."""
        self.socket.sendall(frame(name, **fields))

    def receive_raw(self) -> tuple[str, bytes]:
        """The next message's table and body."""
        header = self._exactly(HEADER.size)
        version, number, length = HEADER.unpack(header)
        assert version == 0
        return NAMES[number], self._exactly(length)

    def receive(self, name: str) -> dict[str, Any]:
        """The next message, which must be of this table."""
        received, body = self.receive_raw()
        assert received == name
        return decode([(received, body)])[0]

    def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its reply."""
        self.send(f"{name}Request", **fields)
        return self.receive(f"{name}Reply")

    def take_descriptor(self) -> int:
        """The descriptor that comes behind the first reply with a segment."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        assert len(data) == 1
        (descriptor,) = descriptors
        return descriptor

    def is_cut_off(self) -> bool:
        """Whether the server closes the connection before it sends anything; it waits for one of the two."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:  # a socket with a time-out returns what there is, MSG_WAITALL or not
            part = self.socket.recv(length - len(received))
            assert part, "the server closed the connection"
            received += part
        return bytes(received)
