"""The test values, how to check that they arrived intact, and what pages hold them. Used in workers."""

from __future__ import annotations

import random
from typing import Any

from benchmarks.systems.base import ARRAY, BYTES, TABLE

COLUMNS = 7
OCTETS = "octets"  # an array of bytes, so that it may have any size
ROW_BYTES = 64  # of a table: six integers of 8 bytes, a text of 12 and its offset of 4
TEXT_BYTES = 12


def make(kind: str, nbytes: int) -> Any:
    """Make a value of about ``nbytes``, the same every time."""
    if kind == BYTES:
        return random.Random(nbytes).randbytes(nbytes)
    import numpy as np

    if kind == OCTETS:
        return np.resize(np.arange(251, dtype=np.uint8), nbytes)
    if kind == ARRAY:
        return np.arange(max(1, nbytes // 8), dtype=np.int64)
    if kind != TABLE:
        raise ValueError(f"a state is {BYTES}, {ARRAY} or {TABLE}, not {kind}")
    import pyarrow as pa

    rows = max(1, nbytes // ROW_BYTES)
    numbers = [pa.array(np.arange(rows, dtype=np.int64) + column) for column in range(COLUMNS - 1)]
    offsets = np.arange(rows + 1, dtype=np.int32) * TEXT_BYTES
    letters = np.resize(np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8), rows * TEXT_BYTES)
    texts = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    return pa.table([*numbers, texts], names=[*(f"n{column}" for column in range(COLUMNS - 1)), "text"])


def touch(kind: str, value: Any) -> int:
    """Read every byte; returns the sum."""
    import numpy as np

    if kind in (ARRAY, OCTETS):
        return int(value.sum())
    total = 0
    for column in value.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None:
                    whole = buffer.size // 8 * 8
                    total += int(np.frombuffer(buffer, dtype=np.uint64, count=whole // 8).sum())
    return total


def check(kind: str, nbytes: int, value: Any) -> None:
    """Check that the value is the one ``make`` makes; cheap for large ones, which ``touch`` sums anyway.

    Raises:
        RuntimeError: it is not.
    """
    if kind == BYTES:
        whole = bytes(memoryview(value)) == make(kind, nbytes)
    elif kind == ARRAY:
        count = max(1, nbytes // 8)
        whole = len(value) == count and int(value[-1]) == count - 1 and int(value.sum()) == count * (count - 1) // 2
    elif kind == OCTETS:
        whole = len(value) == nbytes and int(value[-1]) == (nbytes - 1) % 251
    else:
        rows = max(1, nbytes // ROW_BYTES)
        whole = value.num_rows == rows and value.num_columns == COLUMNS
        whole = whole and value.column(0)[rows - 1].as_py() == rows - 1
        whole = whole and len(value.column(COLUMNS - 1)[rows - 1].as_py()) == TEXT_BYTES
    if not whole:
        raise RuntimeError(f"the system gave back another value than it was given ({kind}, {nbytes} bytes)")


def _address(kind: str, value: Any) -> int:
    if kind in (ARRAY, OCTETS):
        return int(value.ctypes.data)
    if kind == TABLE:
        buffers = [buffer for buffer in value.column(0).chunks[0].buffers() if buffer is not None]
        return int(buffers[-1].address)
    return 0


def pages(kind: str, value: Any) -> str:
    """The kind of pages that hold a large value, according to the kernel: ``shared, 2 MiB`` or ``private, 4 KiB``."""
    at = _address(kind, value)
    return "" if at == 0 else pages_at(at)


def pages_at(at: int) -> str:
    """The same for the memory at an address."""
    shared, name, resident, huge = "", "", 0, 0
    inside = False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            first, _, rest = line.partition(" ")
            begin, dash, end = first.partition("-")
            if dash and not first.endswith(":"):
                inside = int(begin, 16) <= at < int(end, 16)
                if inside:
                    fields = rest.split()
                    shared = "shared" if fields[0][3] == "s" else "private"
                    name = fields[4] if len(fields) > 4 else ""
            elif inside and first == "Rss:":
                resident = int(rest.split()[0])
            elif inside and first in ("AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"):
                huge += int(rest.split()[0])
    if shared == "private" and name.startswith("/"):
        shared = "file"
    size = "2 MiB" if huge * 2 > resident > 0 else "4 KiB"
    return f"{shared}, {size}"
