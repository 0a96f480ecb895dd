"""The broker's protocol, spoken by bare sockets: both directions, deaths, and what must not harm others."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import entrepot
import pyarrow as pa
import pytest
from entrepot.errors import StreamFailed
from entrepot_pipes import open_export, open_import
from entrepot_pipes.broker.server import MAX_CONNECTIONS, Broker

WAIT = 60.0
END = struct.pack(">I", 0)
FAILURE = struct.pack(">I", 0xFFFFFFFF)
Connect = Callable[[], "Client"]


class Client:
    """A program of another language."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(os.fspath(path))
        self.socket.settimeout(WAIT)
        self.input = self.socket.makefile("rb")

    def ask(self, **request: Any) -> None:
        self.send(json.dumps({"protocol": 1, "program": "java Main", "pid": 4711, **request}).encode() + b"\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, data: bytes) -> None:
        self.send(struct.pack(">I", len(data)) + data)

    def answer(self) -> Any:
        return json.loads(self.input.readline())

    def data(self) -> tuple[bytes, str | None]:
        """All data, and why it failed."""
        received = b""
        while length := struct.unpack(">I", self.input.read(4))[0]:
            if length == 0xFFFFFFFF:
                return received, self.input.read(struct.unpack(">I", self.input.read(4))[0]).decode()
            received += self.input.read(length)
        return received, None

    def close(self) -> None:
        self.input.close()
        self.socket.close()


@pytest.fixture
def connect(store: entrepot.Store, socket_folder: Path) -> Iterator[Connect]:
    """``connect()``: a connection to a broker that runs for this test."""
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(socket_folder / "broker.sock"))
        return clients[-1]

    with Broker(socket_folder / "broker.sock", store, WAIT):
        yield start
        for client in clients:
            client.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def read_rows(name: str, store: entrepot.Store) -> list[dict[str, Any]]:
    with open_import(name, store=store, timeout=WAIT) as reader:
        rows: list[dict[str, Any]] = pa.Table.from_batches(list(reader), reader.schema).to_pylist()
    return rows


def test_text_from_one_connection_to_another(connect: Connect) -> None:
    writer, reader = connect(), connect()
    reader.ask(pipe="db://t?query=q", role="import", form="text")
    writer.ask(pipe="db://t?query=q", role="export", form="text")
    assert writer.answer() == {"ok": True}
    text = b"a,b\n1,2\n" * 500_000
    for start in range(0, len(text), 1 << 20):
        writer.frame(text[start : start + (1 << 20)])
        if start == 0:
            assert reader.answer() == {"ok": True}
    writer.send(END)
    assert reader.data() == (text, None)
    assert writer.answer() == {"ok": True}


@pytest.mark.parametrize("count", [0, 3])
def test_arrow_both_ways(count: int, connect: Connect, store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    table = pa.table({"id": pa.array(range(count), pa.int64()), "s": pa.array(["x"] * count, pa.string())})
    read = pool.submit(read_rows, "db://in", store)
    writer = connect()
    writer.ask(pipe="db://in", role="export", form="arrow")
    assert writer.answer() == {"ok": True}
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data = sink.getvalue()
    for start in range(0, len(data), 50):  # frames are cut anywhere
        writer.frame(data[start : start + 50])
    writer.send(END)
    assert writer.answer() == {"ok": True}
    assert read.result(WAIT) == table.to_pylist()

    def export() -> None:
        with open_export("db://out", store=store, timeout=WAIT) as end:
            end.write(table)

    written = pool.submit(export)
    reader = connect()
    reader.ask(pipe="db://out", role="import", form="arrow")
    assert reader.answer() == {"ok": True}
    received, failure = reader.data()
    assert failure is None
    assert pa.ipc.open_stream(received).read_all().equals(table)
    written.result(WAIT)


@pytest.mark.parametrize("way", ["dies", "gives up", "garbage", "oversized"])
@pytest.mark.parametrize("form", ["text", "arrow"])
def test_an_exporter_that_fails(
    way: str, form: str, connect: Connect, store: entrepot.Store, pool: ThreadPoolExecutor
) -> None:
    read = pool.submit(read_rows, "db://bad", store)
    writer = connect()
    writer.ask(pipe="db://bad", role="export", form=form)
    assert writer.answer() == {"ok": True}
    if form == "text":
        writer.frame(b"a,b\n1,2\n")
    if way == "dies":
        writer.close()
    elif way == "gives up":
        writer.send(FAILURE + struct.pack(">I", 7) + b"my disk")
    elif way == "garbage" and form == "arrow":
        writer.frame(b"\x07" * 1000)
        writer.send(END)
        assert writer.answer()["ok"] is False
    else:
        writer.send(struct.pack(">I", (16 << 20) + 1) + b"x" * 100)
        assert writer.answer()["error"] == "ProtocolError"
    with pytest.raises(StreamFailed) as failed:
        read.result(WAIT)
    expected = {"dies": r"java Main (process 4711) ended before it had written everything", "gives up": "my disk"}
    assert expected.get(way, "") in str(failed.value)


def test_an_importer_gets_a_failure_and_no_end(connect: Connect, store: entrepot.Store) -> None:
    reader = connect()
    reader.ask(pipe="db://f", role="import", form="text")
    export = open_export("db://f", store=store, timeout=WAIT)
    export.write(pa.record_batch({"a": [1, 2, 3]}))
    export.flush()
    assert reader.answer() == {"ok": True}
    export.abort("the cat")
    received, failure = reader.data()
    assert received == b"a\n1\n2\n3\n"
    assert failure is not None
    assert "the cat" in failure


def test_an_importer_that_goes_away(connect: Connect, store: entrepot.Store) -> None:
    reader = connect()
    reader.ask(pipe="db://gone", role="import", form="text")
    export = open_export("db://gone", store=store, timeout=WAIT)
    batch = pa.record_batch({"a": list(range(200_000))})
    export.write(batch)
    assert reader.answer() == {"ok": True}
    reader.close()

    def write_on() -> None:
        for _ in range(1000):
            export.write(batch)

    with pytest.raises(StreamFailed, match="an importer failed"):
        write_on()


def test_existence(connect: Connect, store: entrepot.Store) -> None:
    def ask() -> Any:
        client = connect()
        client.ask(pipe="db://e", role="exists")
        return client.answer()

    assert ask() == {"ok": True, "exists": False}
    export = open_export("db://e", store=store)
    assert ask() == {"ok": True, "exists": True}
    export.abort("end of test")


@pytest.mark.parametrize(
    ("line", "error", "part"),
    [
        (b"\x00\xff garbage\n", "ProtocolError", "no JSON"),
        (b"[" * 60_000 + b"\n", "ProtocolError", "no JSON"),
        (b"[1]\n", "ProtocolError", "not a JSON object"),
        (b"x" * 70_000, "ProtocolError", "65,536 bytes"),
        (b'{"protocol": 2}\n', "VersionMismatch", "protocol 1"),
        (b'{"protocol": 1, "pipe": "x", "role": "export"}\n', "InvalidArgument", "db://name"),
        (b'{"protocol": 1, "pipe": "db://x", "role": "both"}\n', "ProtocolError", "'both'"),
        (b'{"protocol": 1, "pipe": "db://x", "role": "export", "form": "xml"}\n', "ProtocolError", "'xml'"),
        (b'{"protocol": 1, "pipe": "db://x", "role": "export", "pid": "1"}\n', "ProtocolError", "pid"),
        (b'{"protocol": 1, "pipe": "db://x", "role": "export", "dialect": 3}\n', "ProtocolError", "dialect"),
        (b'{"protocol": 1, "pipe": "db://x", "role": "export", "nice": 3}\n', "ProtocolError", "nice"),
        (b'{"protocol": 1, "pipe": "db://x?workers=0", "role": "export"}\n', "InvalidArgument", "workers"),
        (
            b'{"protocol": 1, "pipe": "db://x", "role": "export", "dialect": {"delimiter": "ab"}}\n',
            "InvalidArgument",
            "delimiter",
        ),
    ],
)
def test_bad_requests(line: bytes, error: str, part: str, connect: Connect) -> None:
    client = connect()
    client.send(line)
    answer = client.answer()
    assert (answer["ok"], answer["error"]) == (False, error)
    assert part in answer["message"]
    assert client.input.read() == b""


def test_silent_and_unread_connections_harm_nobody(
    connect: Connect, store: entrepot.Store, pool: ThreadPoolExecutor
) -> None:
    for _ in range(20):
        connect()  # says nothing
    unread = connect()
    unread.ask(pipe="db://unread", role="import", form="text")
    stuck = open_export("db://unread", store=store, timeout=WAIT)
    stuck.write(pa.record_batch({"a": list(range(500_000))}))
    stuck.flush()
    read = pool.submit(read_rows, "db://other", store)
    writer = connect()
    writer.ask(pipe="db://other", role="export", form="text")
    assert writer.answer() == {"ok": True}
    writer.frame(b"a\n1\n")
    writer.send(END)
    assert writer.answer() == {"ok": True}
    assert read.result(WAIT) == [{"a": 1}]
    stuck.abort("end of test")


def test_connections_are_bounded(connect: Connect) -> None:
    for _ in range(MAX_CONNECTIONS):
        connect()
    refused = connect()
    assert refused.answer()["error"] == "TooManyConnections"


def test_a_broker_that_ends_aborts_its_exports(store: entrepot.Store, socket_folder: Path) -> None:
    with Broker(socket_folder / "broker.sock", store, WAIT) as broker:
        client = Client(broker.path)
        client.ask(pipe="db://ends", role="export", form="text")
        assert client.answer() == {"ok": True}
    with pytest.raises(StreamFailed, match="ended before it had written everything"):
        read_rows("db://ends", store)
    client.close()
    assert not broker.path.exists()
