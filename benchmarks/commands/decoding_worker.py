"""A process that reads a Parquet file: ``python -m benchmarks.commands.decoding_worker``.

Arguments: the work (``many``, ``one``), who reads (``Entrepot``, ``PyArrow``), the file, the store's address or the
folder for the peer's copy, and the number of threads that decode. Prints ``ready``, waits for a line, reads, prints its
figures as JSON, and keeps the table until the next line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def main(work: str, who: str, path: str, where: str, threads: str) -> None:
    """Read the file, and print what it took."""
    import entrepot

    pa.set_cpu_count(int(threads))
    store = entrepot.connect(where) if who == "Entrepot" else None
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    copied = 0
    with tempfile.TemporaryDirectory(dir=where if store is None else None) as folder:
        table: Any = pq.read_table(path) if store is None else store.read_parquet(path)
        if work == "one" and store is None:
            copy = os.path.join(folder, "copy.arrow")
            with pa.OSFile(copy, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            copied = os.path.getsize(copy)
        total = pc.call_function("sum", [table["id"]]).as_py() if work == "many" else 0
        end = time.monotonic()
        figures = {"begin": begin, "end": end, "sum": total, "copy": copied, "bytes": table.nbytes}
        print(json.dumps({**figures, "peak": pa.default_memory_pool().max_memory()}), flush=True)
        sys.stdin.readline()
    if store is not None:
        store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
