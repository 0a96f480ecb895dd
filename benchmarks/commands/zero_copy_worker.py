"""One step of a pipeline: ``python -m benchmarks.commands.zero_copy_worker WHO WHERE SOURCE NUMBER``.

Gets a table, adds one column that it computes from the first one, stores the result. ``WHO`` is ``Entrepot`` (``WHERE``
is the store's address, ``SOURCE`` an object's ID) or ``Arrow IPC`` (``WHERE`` is a folder on tmpfs, ``SOURCE`` a file).
Prints JSON: where the result is, the bytes stored for it, the size of the new column and its sum, and the seconds of
the whole step and of computing the column, both without the start of Python and its imports.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

OURS, PEER = "Entrepot", "Arrow IPC"


def main(who: str, where: str, source: str, number: str) -> None:
    """Take the step, and print what it took."""
    import entrepot
    import entrepot_io.codecs.arrow_values

    assert entrepot_io.codecs.arrow_values  # imported before the clock starts, as PyArrow is
    _column(pa.table({"c": [1]}), 1)  # PyArrow prepares its functions at the first call
    begin = time.perf_counter()
    if who == OURS:
        with entrepot.connect(where) as store:
            table = store.get(source)
            with store.allocating():
                column, making = _column(table, int(number))
                oid = store.put(table.append_column(f"new{number}", column))
            seconds = time.perf_counter() - begin
            result, nbytes = str(oid), store.info(oid).own_bytes
    else:
        table = pa.ipc.open_file(pa.memory_map(source)).read_all()
        column, making = _column(table, int(number))
        path = Path(where, f"{number}.arrow")
        write_ipc(table.append_column(f"new{number}", column), path)
        seconds = time.perf_counter() - begin
        result, nbytes = str(path), os.path.getsize(path)
    total = pc.call_function("sum", [column]).as_py()
    figures = {"result": result, "bytes": nbytes, "column": column.nbytes, "sum": total}
    print(json.dumps({**figures, "seconds": seconds, "making": making}))


def write_ipc(table: Any, path: Path) -> None:
    """Write a table as an Arrow IPC file."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _column(table: Any, number: int) -> tuple[Any, float]:
    """Compute a new column; return it with the seconds it took."""
    call: Callable[..., Any] = pc.call_function
    begin = time.perf_counter()
    column = call("add", [table.column(0), number])
    return column, time.perf_counter() - begin


if __name__ == "__main__":
    main(*sys.argv[1:])
