"""A pandas DataFrame in the store: written once, read by other processes without a copy.

python examples/plasma/dataframes.py SOCKET
"""

import subprocess
import sys
from typing import Any

import entrepot.plasma as plasma  # was: import pyarrow.plasma as plasma
import numpy as np
import pandas as pd
import pyarrow as pa

READERS = 2


def write_frame(client: Any, frame: pd.DataFrame) -> Any:
    """Write a DataFrame as an Arrow stream; return its ID."""
    batch = pa.RecordBatch.from_pandas(frame)

    # The store allocates before anything is written, so the stream is first written to nowhere to learn its size.
    counter = pa.MockOutputStream()
    with pa.RecordBatchStreamWriter(counter, batch.schema) as writer:
        writer.write_batch(batch)

    object_id = plasma.ObjectID(np.random.bytes(20))
    buffer = client.create(object_id, counter.size())
    with pa.RecordBatchStreamWriter(pa.FixedSizeBufferWriter(buffer), batch.schema) as writer:
        writer.write_batch(batch)
    client.seal(object_id)
    return object_id


def read_frame(client: Any, object_id: Any) -> pd.DataFrame:
    """Read what write_frame wrote."""
    [data] = client.get_buffers([object_id])
    reader = pa.RecordBatchStreamReader(pa.BufferReader(data))
    frame: pd.DataFrame = reader.read_next_batch().to_pandas()
    return frame


def main(socket: str, digits: str = "") -> None:
    """Write a frame and start readers; with the digits of an ID, be such a reader."""
    client = plasma.connect(socket)
    if digits:
        frame = read_frame(client, plasma.ObjectID(bytes.fromhex(digits)))
        print(f"{len(frame)} rows, columns {', '.join(frame.columns)}, sum of b: {frame['b'].sum():g}")
        return
    rows = 100_000
    frame = pd.DataFrame({"a": np.arange(rows), "b": np.linspace(0.0, 1.0, rows)})
    object_id = write_frame(client, frame)
    for _ in range(READERS):
        subprocess.run([sys.executable, __file__, socket, object_id.binary().hex()], check=True)
    client.delete([object_id])
    print("still in the store:", client.contains(object_id))


if __name__ == "__main__":
    main(*sys.argv[1:])
