"""Writers of a shuffle that are killed, in each of their steps: the shuffle fails, and no partition lacks rows."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import ObjectLost, StreamFailed, StreamLost
from spawned_programs import read_line

Spawn = Callable[..., subprocess.Popen[str]]

WRITER = """
    import numpy as np
    import pyarrow as pa

    step = sys.argv[1]

    def stop():
        print("here", flush=True)
        sys.stdin.readline()

    shuffle = store.shuffle("x")
    if step == "slot":
        from entrepot._services.manifest import WriterSlots
        WriterSlots.take = lambda self, prefix: stop()
    if step == "manifest":
        from entrepot._streams.writer import StreamWriter
        StreamWriter.close = lambda self: stop()
    if step == "pages":
        from entrepot._services import service_writer
        service_writer.pack_manifest = lambda *arguments: stop()
    with shuffle.writer() as writer:
        if step == "opened":
            stop()
        for number in range(20):
            writer.append(pa.table({"n": np.arange(number * 20_000, (number + 1) * 20_000)}), by="n")
        if step == "appended":
            stop()
    print("closed", flush=True)
"""


def killed(spawn: Spawn, step: str) -> None:
    process = spawn(WRITER, step)
    assert read_line(process) == "here"
    process.kill()
    process.wait(60)


@pytest.mark.parametrize("step", ["slot", "opened", "appended", "pages"])
def test_a_writer_that_is_killed_fails_the_shuffle(store: entrepot.Store, spawn: Spawn, step: str) -> None:
    shuffle = store.shuffle("x", 4, writers=2, page_bytes="64KiB")
    with shuffle.writer() as writer:
        writer.append(pa.table({"n": np.arange(1000)}), by="n")
    killed(spawn, step)
    with pytest.raises(StreamFailed, match="shuffle 'x' has failed"):
        next(shuffle.read(0, timeout=60))
    assert not shuffle.sealed
    shuffle.discard()
    assert store.status()["objects"] == 0
    again = store.shuffle("x", 2)
    with again.writer() as writer:
        writer.append(pa.table({"n": [1, 2, 3]}), by="n")
    assert sum(again.counts()) == 3


def test_a_writer_that_is_killed_when_all_was_written(store: entrepot.Store, spawn: Spawn) -> None:
    shuffle = store.shuffle("x", 4)
    killed(spawn, "manifest")
    assert sum(shuffle.counts(timeout=60)) == 400_000


def test_another_writers_death_ends_open_writers(
    store: entrepot.Store, spawn: Spawn, wait_until: Callable[..., None]
) -> None:
    shuffle = store.shuffle("x", 4, writers=2)
    writer = shuffle.writer()
    killed(spawn, "appended")
    with pytest.raises(StreamFailed):
        shuffle.seal(timeout=60)
    with pytest.raises(StreamFailed):
        writer.close()
    assert writer.closed


def test_writers_in_processes(store: entrepot.Store, spawn: Spawn) -> None:
    shuffle = store.shuffle("x", 4, writers=2)
    processes = [spawn(WRITER, "none") for _ in range(2)]
    for process in processes:
        assert read_line(process) == "closed"
    received = np.concatenate([shuffle.to_arrow(partition, timeout=60)["n"].to_numpy() for partition in range(4)])
    np.testing.assert_array_equal(np.sort(received), np.repeat(np.arange(400_000), 2))


def test_a_page_that_was_deleted_is_missed(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 1)
    with shuffle.writer() as writer:
        writer.append(pa.table({"n": np.arange(100)}), by="n")
    store.delete(shuffle.seal().ids[0])
    with pytest.raises(ObjectLost):
        next(shuffle.read(0))


def test_a_shuffle_that_was_discarded_while_it_was_written(store: entrepot.Store) -> None:
    shuffle: Any = store.shuffle("x", 1)
    writer = shuffle.writer()
    writer.append(pa.table({"n": [1]}), by="n")
    shuffle.discard()
    with pytest.raises(StreamFailed):
        writer.close()
    assert store.status()["objects"] == 0
    shuffle = store.shuffle("x", 1)
    writer = shuffle.writer()
    store.stream("shuffle:x").remove()
    with pytest.raises(StreamLost, match="discard"):
        shuffle.seal(timeout=60)
    writer.abort()
    shuffle.discard()
