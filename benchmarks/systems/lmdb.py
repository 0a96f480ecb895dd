"""LMDB on tmpfs, without syncing to disk and with a writable map: its fastest configuration."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import ARRAY, BYTES, BytesClient, NoServer, RunEnvironment


class LmdbServer(NoServer):
    """No process: a directory, and a file with the size of the map."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Write down the size of the map, which every client must know."""
        # Doubled: a freed page is reused only two transactions later.
        (run_environment.folder / "size").write_text(str(2 * run_environment.capacity))
        return str(run_environment.folder)


class LmdbClient(BytesClient):
    """One transaction per operation. Arrays and tables are read in place, from a transaction that stays open for
    them.
    """

    def connect(self, address: str) -> None:
        """lmdb.open with sync=False, writemap=True."""
        self._lmdb = importlib.import_module("lmdb")
        folder = Path(address)
        size = int((folder / "size").read_text())
        self._env = self._lmdb.open(str(folder), map_size=size, sync=False, writemap=True, max_readers=512)
        self._reading: Any = None

    def _put(self, value: Any) -> bytes:
        token = os.urandom(20)
        with self._env.begin(write=True) as transaction:
            transaction.put(token, value)
        return token

    def _get(self, token: bytes) -> bytes:
        with self._env.begin() as transaction:
            return bytes(transaction.get(token))

    def _view(self, token: bytes) -> Any:
        self._reading = self._env.begin(buffers=True)
        return self._reading.get(token)

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Bytes are copied, as by default in LMDB; other kinds are read in place."""
        if kind == BYTES:
            return self._get
        if kind == ARRAY:
            numpy = importlib.import_module("numpy")
            return lambda token: numpy.frombuffer(self._view(token), dtype=numpy.int64)
        arrow = importlib.import_module("pyarrow")
        return lambda token: arrow.ipc.open_stream(arrow.py_buffer(self._view(token))).read_all()

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """One transaction for all."""
        tokens = [os.urandom(20) for _ in values]
        with self._env.begin(write=True) as transaction:
            for token, value in zip(tokens, values, strict=True):
                transaction.put(token, value)
        return tokens

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """One transaction for all."""
        with self._env.begin() as transaction:
            return [transaction.get(token) for token in tokens]

    def delete(self, tokens: Sequence[Any]) -> None:
        """One transaction for all."""
        with self._env.begin(write=True) as transaction:
            for token in tokens:
                transaction.delete(token)

    def release(self) -> None:
        """End the transaction in which an array or table was read."""
        if self._reading is not None:
            self._reading.abort()
            self._reading = None

    def to_text(self, token: Any) -> str:
        """The key in hex."""
        return str(token.hex())

    def from_text(self, text: str) -> Any:
        """The key."""
        return bytes.fromhex(text)

    def versions(self) -> dict[str, str]:
        """Versions of the binding and the library."""
        return {"lmdb": self._lmdb.__version__, "liblmdb": ".".join(map(str, self._lmdb.version()))}

    def close(self) -> None:
        """Environment.close."""
        self.release()
        self._env.close()
