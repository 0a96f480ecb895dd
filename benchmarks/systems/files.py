"""Files in memory (tmpfs): what a workflow does without a store. Pickle 5, and Arrow's own format."""

from __future__ import annotations

import importlib
import os
import pickle
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import BYTES, TABLE, ClientBase


class PickleClient(ClientBase):
    """pickle.dump with protocol 5 into a file, pickle.load from it."""

    def connect(self, address: str) -> None:
        """The address is the directory."""
        self._folder = address

    def _path(self) -> str:
        return f"{self._folder}/{os.urandom(10).hex()}"

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Writes a new file each time."""
        return self._put

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Opens, reads and closes the file."""
        return self._get

    def _put(self, value: Any) -> str:
        path = self._path()
        with open(path, "wb") as file:
            pickle.dump(value, file, protocol=5)
        return path

    def _get(self, token: str) -> Any:
        with open(token, "rb") as file:
            return pickle.load(file)

    def delete(self, tokens: Sequence[Any]) -> None:
        """Unlinks the files."""
        for token in tokens:
            Path(token).unlink()

    def versions(self) -> dict[str, str]:
        """Python's version."""
        return {"python": platform.python_version()}


class ArrowClient(PickleClient):
    """Arrow IPC files for tables, Arrow tensors for arrays; read through a memory map, hence without a copy."""

    def connect(self, address: str) -> None:
        """The address is the directory."""
        super().connect(address)
        self._arrow = importlib.import_module("pyarrow")

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Writes a new file each time."""
        if kind == BYTES:
            raise ValueError("Arrow files are measured with arrays and tables only")
        return self._put_table if kind == TABLE else self._put_array

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Maps the file."""
        return self._get_table if kind == TABLE else self._get_array

    def _put_table(self, table: Any) -> str:
        path = self._path()
        with self._arrow.OSFile(path, "wb") as sink, self._arrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return path

    def _get_table(self, token: str) -> Any:
        return self._arrow.ipc.open_file(self._arrow.memory_map(token)).read_all()

    def _put_array(self, array: Any) -> str:
        path = self._path()
        with self._arrow.OSFile(path, "wb") as sink:
            self._arrow.ipc.write_tensor(self._arrow.Tensor.from_numpy(array), sink)
        return path

    def _get_array(self, token: str) -> Any:
        return self._arrow.ipc.read_tensor(self._arrow.memory_map(token)).to_numpy()

    def versions(self) -> dict[str, str]:
        """Version of pyarrow."""
        return {"pyarrow": self._arrow.__version__}
