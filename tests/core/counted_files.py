"""``counted://``: local files through fsspec, which records each time one is opened, and can be held there.

Environment variables, all optional:

    COUNTED_LOG    each opening appends a line with the process ID
    COUNTED_GATE   an opening waits until this file exists
    COUNTED_TOUCH  an opening changes the file's modification time, as a writer would
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

WATCHDOG_SECONDS = 60.0


class CountedFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Local files whose openings are counted."""

    protocol = ("counted",)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("counted://"))

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        if log := os.environ.get("COUNTED_LOG"):
            descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            os.close(descriptor)
        if gate := os.environ.get("COUNTED_GATE"):
            end = time.monotonic() + WATCHDOG_SECONDS
            while not os.path.exists(gate) and time.monotonic() < end:
                time.sleep(0.005)
        if os.environ.get("COUNTED_TOUCH"):
            status = os.stat(path)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
        return super().open(path, mode, block_size, cache_options, compression, **options)


class UndatedFileSystem(CountedFileSystem):
    """The same, but it does not tell when a file was changed."""

    protocol = ("undated",)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return LocalFileSystem._strip_protocol(str(path).removeprefix("undated://"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {
            name: value for name, value in super().info(path, **options).items() if name in ("name", "size", "type")
        }

    def modified(self, path: str) -> Any:
        raise NotImplementedError


def register() -> None:
    """Make fsspec know both."""
    for cls in (CountedFileSystem, UndatedFileSystem):
        fsspec.register_implementation(cls.protocol[0], cls, clobber=True)


def openings(log: Path) -> list[int]:
    """Return the process IDs in a log."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []
