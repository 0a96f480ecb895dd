"""A daemon that is one minor version of the protocol older: it is used without what it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from daemon_of_another_version import DaemonOfAnotherVersion
from entrepot import raw_objects
from entrepot._core import PROTOCOL

OPEN_RINGS, PUT_CHUNK = 48, 63  # types in a frame's header


def test_it_is_used_without_what_it_lacks(daemon: Any, socket_folder: Path) -> None:
    older = DaemonOfAnotherVersion(f"{socket_folder}/older.sock", daemon.address, (PROTOCOL[0], PROTOCOL[1] - 1))
    try:
        with entrepot.connect(older.address, scope="tests") as store:
            array = np.arange(100_000)
            assert np.array_equal(store.get(store.put(array)), array)
            values = [f"value {number}".encode() for number in range(300)]
            oids = [store.put(value) for value in values]
            assert [store.get(oid) for oid in oids] == values
            assert store.get_many(store.put_many(values)) == values
            store.reserve(1 << 20).release()
            generation = raw_objects.generation_of(store, oids[0])
            assert generation is not None
            raw_objects.discard_generation(store, oids[0], generation)
            with pytest.raises(entrepot.ObjectNotFound):
                store.get(oids[0])
    finally:
        older.close()
    assert older.requests.count(OPEN_RINGS) == 1


def test_streams_work_with_it(daemon: Any, socket_folder: Path) -> None:
    older = DaemonOfAnotherVersion(f"{socket_folder}/older.sock", daemon.address, (PROTOCOL[0], PROTOCOL[1] - 1))
    try:
        with entrepot.connect(older.address, scope="tests") as store:
            with store.stream("x", capacity=2).writer() as writer:  # few requests: no rings yet
                writer.put(np.arange(100_000))
                writer.put("second")
                with pytest.raises(entrepot.Timeout):
                    writer.put("third", timeout=0)
            first, second = store.stream("x").reader("g")
            assert (first[-1], second) == (99_999, "second")
            assert store.status()["objects"] == 0
    finally:
        older.close()
    assert PUT_CHUNK in older.requests
