"""Ways to hand values from a process to processes of later stages, on the same host or on another one.

All of them write and read the same values; what a process gets in place of a value is a reference, as JSON. Values are
Arrow tables and NumPy arrays.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from examples.workflows.pipeline import Array, Value
from examples.workflows.s3_server import BUCKET, REGION

NAMES = ("entrepot", "s3", "mapped", "parquet")
LABELS = {
    "entrepot": "Entrepot",
    "s3": "S3 (Parquet, npy)",
    "mapped": "tmpfs, mapped (Arrow, npy)",
    "parquet": "tmpfs (Parquet, npy)",
}
S3_THREADS = 8
PAGE = 4096


class Transport(ABC):
    """One process's end of a transport.

    Args:
        settings: what the transport needs to know, as JSON; see :func:`open_transport`.
    """

    @abstractmethod
    def write(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Hand values over; returns a reference to each."""

    @abstractmethod
    def read(self, references: Sequence[Any]) -> list[Value]:
        """The values of references."""

    @abstractmethod
    def remove(self, references: Sequence[Any]) -> None:
        """Remove values, as far as this host has them."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the transport holds."""


class Entrepot(Transport):
    """The host's own store; what is in another host's comes through the gateways."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from entrepot_io.connections import session_store

        self._address = settings["address"]
        self._store = session_store(self._address, "workflows", settings["run"], None)  # get_values() uses the same

    def write(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """See the base class."""
        from entrepot_io.values import put_value

        return {name: put_value(self._store, None, value).to_dict() for name, value in values.items()}

    def read(self, references: Sequence[Any]) -> list[Value]:
        """See the base class."""
        from entrepot_io.reference import Reference
        from entrepot_io.values import get_values

        return get_values([Reference.parse(reference) for reference in references], address=self._address)

    def remove(self, references: Sequence[Any]) -> None:
        """See the base class."""
        for reference in references:
            self._store.delete(reference["id"])

    def close(self) -> None:
        """See the base class."""
        self._store.close()


class Files(Transport):
    """Files in a folder that all hosts share, which is in memory."""

    def __init__(self, settings: Mapping[str, Any], *, mapped: bool) -> None:
        self._folder = Path(settings["folder"])
        self._mapped = mapped

    def write(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """See the base class."""
        return {name: self._write(name, value) for name, value in values.items()}

    def _write(self, name: str, value: Value) -> str:
        if isinstance(value, np.ndarray):
            path = self._folder / f"{name}.npy"
            np.save(path, value)
        elif self._mapped:
            path = self._folder / f"{name}.arrow"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, value.schema) as writer:
                writer.write_table(value)
        else:
            path = self._folder / f"{name}.parquet"
            pq.write_table(value, path)
        return str(path)

    def read(self, references: Sequence[Any]) -> list[Value]:
        """See the base class."""
        return [self._read(path) for path in references]

    def _read(self, path: str) -> Value:
        if path.endswith(".npy"):
            array: Array = np.load(path, mmap_mode="r" if self._mapped else None)
            return array
        if path.endswith(".arrow"):
            return pa.ipc.open_file(pa.memory_map(path)).read_all()
        return pq.read_table(path, memory_map=True)

    def remove(self, references: Sequence[Any]) -> None:
        """See the base class."""
        for path in references:
            Path(path).unlink()

    def close(self) -> None:
        """See the base class."""


class S3(Transport):
    """Objects in a bucket, several at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        access = settings["access"]
        self._files = pyarrow.fs.S3FileSystem(
            access_key=access["key"],
            secret_key=access["secret"],
            endpoint_override=access["endpoint"],
            scheme="http",
            region=REGION,
        )
        self._prefix = f"{BUCKET}/{settings['run']}"
        self._threads = ThreadPoolExecutor(S3_THREADS)

    def write(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """See the base class."""
        return dict(zip(values, self._threads.map(self._write, values, values.values()), strict=True))

    def _write(self, name: str, value: Value) -> str:
        if isinstance(value, np.ndarray):
            path = f"{self._prefix}/{name}.npy"
            with self._files.open_output_stream(path) as stream:
                head = io.BytesIO()
                array = np.ascontiguousarray(value)
                np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
                stream.write(head.getvalue())
                stream.write(pa.py_buffer(array))  # as it is, in parts of the client's choice
            return path
        path = f"{self._prefix}/{name}.parquet"
        pq.write_table(value, path, filesystem=self._files)
        return path

    def read(self, references: Sequence[Any]) -> list[Value]:
        """See the base class."""
        return list(self._threads.map(self._read, references))

    def _read(self, path: str) -> Value:
        if not path.endswith(".npy"):
            return pq.read_table(path, filesystem=self._files)
        with self._files.open_input_file(path) as stream:
            buffer = stream.read_buffer()
        head = io.BytesIO(memoryview(buffer)[:PAGE])
        np.lib.format.read_magic(head)
        shape, _, dtype = np.lib.format.read_array_header_1_0(head)
        array: Array = np.frombuffer(buffer, dtype, offset=head.tell()).reshape(shape)  # without another copy
        return array

    def remove(self, references: Sequence[Any]) -> None:
        """See the base class."""
        for path in references:
            self._files.delete_file(path)

    def close(self) -> None:
        """See the base class."""
        self._threads.shutdown()


def open_transport(name: str, settings: Mapping[str, Any]) -> Transport:
    """A process's end of a transport.

    Args:
        name: one of ``NAMES``.
        settings: ``run``, a unique name; ``address`` of the host's store; ``folder`` of files; ``access`` of S3.
    """
    if name == "entrepot":
        return Entrepot(settings)
    if name == "s3":
        return S3(settings)
    return Files(settings, mapped=name == "mapped")


def touch(value: Value) -> int:
    """Read a byte of each page of a value, so that a mapped one counts as read only when it really is in memory."""
    if isinstance(value, np.ndarray):
        if not value.nbytes:
            return 0
        return int(np.ascontiguousarray(value).reshape(-1).view(np.uint8)[::PAGE].sum())
    total = 0
    for chunked in value.columns:
        for chunk in chunked.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size:
                    total += int(np.frombuffer(buffer, np.uint8)[::PAGE].sum())
    return total
