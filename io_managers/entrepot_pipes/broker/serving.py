"""Serve one connection: one opened end of a pipe."""

from __future__ import annotations

import io
import socket
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
from entrepot import Store
from entrepot.errors import EntrepotError

from entrepot_pipes.broker.frames import ConnectionEnded, FrameInput, FrameOutput, FrameSocket, ProtocolError
from entrepot_pipes.broker.profiles import known_dialect
from entrepot_pipes.broker.requests import Request
from entrepot_pipes.export_end import Export
from entrepot_pipes.import_end import Import
from entrepot_pipes.pipe import exists, open_export, open_import

# Whoever connects says at once what it wants.
_REQUEST_SECONDS = 30.0
_DRAIN_SECONDS = 5.0
_TEXT_BYTES = 1 << 20


def serve(connection: socket.socket, store: Store, timeout: float | None, verify: int | None) -> None:
    """Serve a connection until it ends, and close it. Errors go to the program."""
    stream = FrameSocket(connection)
    try:
        connection.settimeout(_REQUEST_SECONDS)
        try:
            request = Request.from_line(stream.read_line(), _peer_pid(connection))
        except TimeoutError as error:
            raise ProtocolError(f"no request came within {_REQUEST_SECONDS:g} s") from error
        connection.settimeout(None)  # a program may compute for as long as it likes between two frames
        if request.role == "exists":
            stream.send_line({"ok": True, "exists": exists(request.pipe, store=store)})
        elif request.role == "export":
            _serve_export(stream, request, _options(request, store, timeout, verify))
        else:
            _serve_import(stream, request, _options(request, store, timeout, verify))
    except (EntrepotError, pa.ArrowException) as error:
        _answer_error(stream, error)
        stream.close(_DRAIN_SECONDS)
    except OSError:
        pass  # the program is gone; the end of the pipe was aborted on the way here
    finally:
        stream.close()


def _options(request: Request, store: Store, timeout: float | None, verify: int | None) -> dict[str, Any]:
    """Keyword arguments with which either end of a pipe is opened for a program."""
    return {
        "store": store,
        "form": "text" if request.form == "text" else "columns",
        "dialect": request.dialect,
        "timeout": timeout,
        "program": request.program,
        "pid": request.pid,
        "verify": verify,
        "hints": known_dialect(request.engine, request.engine_version),
    }


def _serve_export(stream: FrameSocket, request: Request, options: dict[str, Any]) -> None:
    with open_export(request.pipe, **options) as export:
        stream.send_line({"ok": True})
        try:
            _receive(stream, request, export)
        except ConnectionEnded as error:
            raise ConnectionEnded(
                f"{request.program} (process {request.pid}) ended before it had written everything"
            ) from error
    stream.send_line({"ok": True})


def _receive(stream: FrameSocket, request: Request, export: Export) -> None:
    if request.form == "text":
        for payload in stream.frames():
            export.write_text(payload)
        return
    source = io.BufferedReader(FrameInput(stream), _TEXT_BYTES)  # reads as much as it is asked for
    with pa.ipc.open_stream(pa.PythonFile(source, "r")) as reader:
        batches = 0
        for batch in reader:
            export.write(batch)
            batches += 1
        if not batches:
            export.write(reader.schema.empty_table())
    if source.read(1):
        raise ProtocolError("there is more data after the end of the Arrow stream")


def _serve_import(stream: FrameSocket, request: Request, options: dict[str, Any]) -> None:
    with open_import(request.pipe, **options) as reader:
        first = reader.read_text(_TEXT_BYTES) if request.form == "text" else b""
        schema = reader.schema if request.form == "arrow" else None
        stream.send_line({"ok": True})
        try:
            _send(stream, reader, first, schema)
        except (EntrepotError, pa.ArrowException) as error:
            stream.send_failure(f"{type(error).__name__}: {error}")
            reader.close()
            return
    stream.send_end()


def _send(stream: FrameSocket, reader: Import, first: bytes, schema: pa.Schema | None) -> None:
    if schema is None:
        while first:
            stream.send_data(first)
            first = reader.read_text(_TEXT_BYTES)
        return
    with pa.ipc.new_stream(pa.PythonFile(FrameOutput(stream), "w"), schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _answer_error(stream: FrameSocket, error: Exception) -> None:
    with suppress(OSError):  # the program is gone
        stream.send_line({"ok": False, "error": type(error).__name__, "message": str(error)})


def _peer_pid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
