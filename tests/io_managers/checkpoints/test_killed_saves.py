"""A save killed at any moment leaves the previous checkpoint intact, and the next save continues where it stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_checkpoints import list_checkpoints, prune, verify

SAVER = """
import sys, entrepot
store = entrepot.connect(sys.argv[1], scope="tests")
print("begin", flush=True)
store.save([entrepot.ObjectID(text) for text in sys.argv[3:]], sys.argv[2])
"""


def saver(store: entrepot.Store, url: str, ids: list[entrepot.ObjectID]) -> subprocess.Popen[bytes]:
    """Start a process that saves; returns once it has begun."""
    command = [sys.executable, "-c", SAVER, store.address, url, *map(str, ids)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begin\n"
    return process


@pytest.mark.slow
def test_a_killed_save_leaves_what_was_there_and_is_taken_up(
    store: entrepot.Store, other: entrepot.Store, folder: Any
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    old = store.put(np.arange(1_000_000))
    store.save(old, folder("one"))
    ids = [store.put(np.random.default_rng(i).bytes(8 << 20)) for i in range(12)]
    killed = 0
    for _ in range(12):
        process = saver(store, folder("one"), ids)
        time.sleep(chance.uniform(0, 0.35))  # kill at a random moment
        process.send_signal(signal.SIGKILL)
        killed += process.wait(30) == -signal.SIGKILL
        assert verify(folder("one")).ok
        roots = other.load(folder("one"))
        assert roots in (old, ids)
        other.delete(old)
        for oid in ids:
            other.delete(oid)
    assert killed > 0
    existing_bytes = sum(path.stat().st_size for path in Path(folder.url, ".entrepot/chunks").glob("*/[0-9a-f]*"))
    report = store.save(ids, folder("one"))
    assert report.written_bytes == 12 * (8 << 20) - (existing_bytes - 8_000_000)
    assert other.load(folder("one")) == ids
    assert all(other.get(oid) == np.random.default_rng(i).bytes(8 << 20) for i, oid in enumerate(ids))
    for lock_file in Path(folder.url, ".entrepot/saving").glob("*"):
        os.utime(lock_file, (0, 0))  # age the lock files of the killed processes, so that they count as stale
    assert prune(folder.url, keep=0).removed == ["one"]
    assert list_checkpoints(folder.url) == []


def test_a_save_that_failed_half_way_is_not_repeated(
    store: entrepot.Store, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [store.put(np.random.default_rng(i).bytes(1 << 20)) for i in range(20)]
    real, room = os.write, [8 << 20]

    def until_full(file: int, data: Any) -> int:
        if len(data) > 1 << 16:
            room[0] -= len(data)
            if room[0] < 0:
                raise OSError(28, "No space left on device")
        return real(file, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", until_full)
        with pytest.raises(entrepot.StoreFull):
            store.save(ids, folder("one"))
    assert list_checkpoints(folder.url) == []
    assert store.save(ids, folder("one")).written_bytes == 12 << 20
    assert verify(folder("one")).ok


def test_a_load_that_failed_half_way_is_not_repeated(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    ids = [store.put(np.random.default_rng(i).bytes(8 << 20)) for i in range(10)]
    store.save(ids, folder("one"))
    moved = [0]

    def stop(done: Any) -> None:
        moved[0] = done.moved_bytes
        if done.done_objects == 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        other.load(folder("one"), progress=stop)
    loaded = len(other.list())
    assert loaded >= 6

    def count(done: Any) -> None:
        moved[0] = done.moved_bytes

    assert other.load(folder("one"), progress=count) == ids
    assert moved[0] == (10 - loaded) * (8 << 20)
