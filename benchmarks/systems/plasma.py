"""Plasma, the object store of Arrow up to release 11."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import ARRAY, BYTES, TABLE, ClientBase, ProcessServer, RunEnvironment, Unavailable, accepts

GET_TIMEOUT_MS = 10_000


class PlasmaServer(ProcessServer):
    """plasma-store-server, from the wheel of pyarrow 11."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Start it on a socket of its own."""
        programs = list(
            Path(run_environment.python).parent.parent.glob("lib/python*/site-packages/pyarrow/plasma-store-server")
        )
        if not programs:
            raise Unavailable(f"the environment of {run_environment.python} has no plasma-store-server")
        command = [str(programs[0]), "-s", str(run_environment.socket), "-m", str(run_environment.capacity)]
        self.launch(run_environment, command, lambda: accepts(run_environment.socket))
        return str(run_environment.socket)


class PlasmaClient(ClientBase):
    """The object interface: ``put`` and ``get``; tables as recommended in Plasma's documentation."""

    def connect(self, address: str) -> None:
        """pyarrow.plasma.connect."""
        warnings.simplefilter("ignore")  # every call warns that it is deprecated
        self._arrow = importlib.import_module("pyarrow")
        self._plasma = importlib.import_module("pyarrow.plasma")
        self._client = self._plasma.connect(address)

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """``put``, or an Arrow stream written into a created object."""
        if kind == TABLE:
            return self._put_table
        put: Callable[[Any], Any] = self._client.put
        return put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """``get``, or an Arrow stream read in place."""
        if kind == TABLE:
            return self._get_table
        get: Callable[[Any], Any] = self._client.get
        return get

    def _put_table(self, table: Any) -> Any:
        arrow = self._arrow
        counter = arrow.MockOutputStream()
        with arrow.ipc.new_stream(counter, table.schema) as writer:
            writer.write_table(table)
        token = self._plasma.ObjectID.from_random()
        buffer = self._client.create(token, counter.size())
        with arrow.ipc.new_stream(arrow.FixedSizeBufferWriter(buffer), table.schema) as writer:
            writer.write_table(table)
        self._client.seal(token)
        return token

    def _get_table(self, token: Any) -> Any:
        [buffer] = self._client.get_buffers([token], timeout_ms=GET_TIMEOUT_MS)
        return self._arrow.ipc.open_stream(buffer).read_all()

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """``get`` takes a list."""
        return list(self._client.get(list(tokens)))

    def delete(self, tokens: Sequence[Any]) -> None:
        """``delete`` takes a list."""
        self._client.delete(list(tokens))

    def holds(self, token: Any) -> bool:
        """Plasma evicts what does not fit."""
        return bool(self._client.contains(token))

    def to_text(self, token: Any) -> str:
        """The ID in hex."""
        return str(token.binary().hex())

    def from_text(self, text: str) -> Any:
        """An ObjectID."""
        return self._plasma.ObjectID(bytes.fromhex(text))

    def versions(self) -> dict[str, str]:
        """Version of pyarrow."""
        return {"pyarrow": self._arrow.__version__}

    def close(self) -> None:
        """disconnect."""
        self._client.disconnect()


class PlasmaRawClient(PlasmaClient):
    """Raw buffers: no serialization at all. A get returns a pyarrow Buffer, not the bytes that were put."""

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """``put_raw_buffer``."""
        if kind != BYTES:
            raise ValueError(f"raw buffers are measured with bytes only, not {kind} or {ARRAY}")
        put: Callable[[Any], Any] = self._client.put_raw_buffer
        return put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """``get_buffers``."""
        return self._get

    def _get(self, token: Any) -> Any:
        return self._client.get_buffers([token], timeout_ms=GET_TIMEOUT_MS)[0]

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """``get_buffers`` takes a list."""
        return list(self._client.get_buffers(list(tokens), timeout_ms=GET_TIMEOUT_MS))
