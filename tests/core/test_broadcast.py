"""Broadcasts: read without a copy by all, and deleted when as many readers as expected are done."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import InvalidArgument, ObjectExists, Timeout
from spawned_programs import read_line

READER = """
    with store.broadcast("x", timeout=60, reader=sys.argv[1]) as received:
        print(float(received.value["weights"].sum()), received.value["weights"].flags.writeable, flush=True)
        sys.stdin.readline()
    print("closed", flush=True)
"""


def test_readers_in_processes(store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    processes = [spawn(READER, f"reader-{number}") for number in range(2)]  # before there is anything
    published = store.broadcast("x", {"weights": np.ones(1_000_000)}, readers=2)
    for process in processes:
        assert read_line(process) == "1000000.0 False"
    assert sum(info.nbytes for info in store.list()) < 9_000_000, "one copy for all"
    for process in processes:
        assert store.exists(published.id)
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        assert read_line(process) == "closed"
    assert not store.exists(published.id)
    assert store.status()["objects"] == 0
    assert [each.reading for each in store.locality_sets() if each.name == "broadcast"] == ["random"]


def test_a_reader_that_is_killed_does_not_count(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    store.broadcast("x", {"weights": np.ones(100_000)}, readers=2)
    process = spawn(READER, "mine")
    assert read_line(process) == "100000.0 False"
    process.kill()
    process.wait(60)
    with store.broadcast("x", reader="other", timeout=0):
        pass
    assert store.status()["objects"] == 1
    with store.broadcast("x", reader="mine", timeout=0) as again:  # its rerun
        value = again.value["weights"]
    assert store.status()["objects"] == 0
    assert value.sum() == 100_000, "views stay valid"
    store.broadcast("x", 1, readers=1)  # the name is free


def test_the_same_reader_counts_once(store: entrepot.Store) -> None:
    store.broadcast("x", "value", readers=2)
    for _ in range(3):
        with store.broadcast("x", reader="a") as received:
            assert received.value == "value"
        received.close()
    with pytest.raises(KeyError), store.broadcast("x", reader="b"):  # a failure is not the end of its work
        raise KeyError
    assert store.status()["objects"] == 1
    store.broadcast("x", reader="b").close()
    assert store.status()["objects"] == 0


def test_without_a_count(store: entrepot.Store) -> None:
    published = store.broadcast("x", None)
    for _ in range(3):
        with store.broadcast("x") as received:
            assert received.value is None
    with pytest.raises(ObjectExists):
        store.broadcast("x", 2)
    with store.broadcast("x"):
        published.discard()
    with pytest.raises(Timeout, match="broadcast 'x' was not published in time"):
        store.broadcast("x", timeout=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"readers": 2}, "for publishing"),
        ({"value": 1, "reader": "a"}, "for receiving"),
        ({"value": 1, "readers": 0}, "at least 1"),
    ],
)
def test_malformed_arguments(store: entrepot.Store, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        store.broadcast("x", **arguments)
