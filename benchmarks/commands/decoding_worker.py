"""A process that reads a Parquet file: ``python -m benchmarks.commands.decoding_worker``.

Arguments: the work (``many``, ``one``), who reads (``Entrepot``, ``PyArrow``), the file, the store's address or the
folder for the peer's copy, and the number of threads that decode. Prints ``ready``, waits for a line, reads, prints its
figures as JSON, and keeps the table until the next line. ``decoding`` is the part of the time in which it waited for
decoded data, from which the rest follows: for ``one``, the way from decoded data to a table that others can map.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def main(work: str, who: str, path: str, where: str, threads: str) -> None:
    """Read the file, and print what it took."""
    import entrepot
    import entrepot_io.codecs.arrow_values
    import pyarrow.dataset

    assert entrepot_io.codecs.arrow_values, pyarrow.dataset  # both sides have imported what they use
    pa.set_cpu_count(int(threads))
    store = entrepot.connect(where) if who == "Entrepot" else None
    decoding = _time_decoding()
    print("ready", flush=True)
    sys.stdin.readline()
    begin, begin_cpu = time.monotonic(), _processor_seconds()
    copied = 0
    with tempfile.TemporaryDirectory(dir=where if store is None else None) as folder:
        table: Any = pq.read_table(path) if store is None else store.read_parquet(path)
        if store is None:
            decoding[0] = time.monotonic() - begin
        if work == "one" and store is None:
            copy = os.path.join(folder, "copy.arrow")
            with pa.OSFile(copy, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            shared = pa.ipc.open_file(pa.memory_map(copy)).read_all()
            copied = os.path.getsize(copy)
            assert shared.num_rows == table.num_rows
        total = pc.call_function("sum", [table["id"]]).as_py() if work == "many" else 0
        end = time.monotonic()
        figures = {"begin": begin, "end": end, "sum": total, "copy": copied, "bytes": table.nbytes}
        figures |= {"decoding": decoding[0], "cpu": _processor_seconds() - begin_cpu}
        print(json.dumps({**figures, "peak": pa.default_memory_pool().max_memory()}), flush=True)
        sys.stdin.readline()
    if store is not None:
        store.close()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _time_decoding() -> list[float]:
    """Have the store's reads add up the seconds in which they wait for decoded parts; return the sum, in a list."""
    from entrepot._readers.formats import Parquet

    seconds = [0.0]
    decode = Parquet.parts

    def timed(self: Any, source: Any, files: Any) -> Iterator[Any]:
        parts = decode(self, source, files)
        while True:
            begin = time.monotonic()
            part = next(parts, None)
            seconds[0] += time.monotonic() - begin
            if part is None:
                return
            yield part

    Parquet.parts = timed  # type: ignore[method-assign]
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
