"""Pages that workers share: each goes to one of them, and to another one if that dies."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import InvalidArgument, StreamEnded, StreamLost, Timeout
from spawned_programs import read_line

WORKER = """
    with store.pages("x")[0] as pages:
        for page in pages:
            print(pages.position, flush=True)
            if sys.argv[1] == "stop":
                sys.stdin.readline()
    print("done", flush=True)
"""


@pytest.fixture
def members(store: entrepot.Store) -> int:
    """How many members collection "x" has."""
    parts = store.collection("x")
    for number in range(20):
        parts.put(np.full(10, number), index=number)
    parts.seal(20)
    return 20


def test_each_page_goes_to_one_iterator(store: entrepot.Store, members: int) -> None:
    received = []
    iterators = store.pages("x", 3)
    for number in range(members):
        page = iterators[number % 3].get(timeout=60)
        assert page[0] == iterators[number % 3].position
        received.append(int(page[0]))
    assert sorted(received) == list(range(members))
    with pytest.raises(Timeout):  # others have some in hand
        iterators[0].get(timeout=0)
    for iterator in iterators[1:]:
        iterator._reader.ack()
    with pytest.raises(StreamEnded):
        iterators[0].get(timeout=60)
    assert list(store.pages("x")[0]) == []  # this run is over
    assert len(list(store.pages("x", run="second")[0])) == members
    assert len(list(store.pages("x", restart=True)[0])) == members


def test_a_killed_workers_page_goes_to_another(
    store: entrepot.Store, members: int, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    first = spawn(WORKER, "stop")
    in_hand = read_line(first)
    second = spawn(WORKER, "go")
    seen = [read_line(second) for _ in range(members - 1)]
    assert in_hand not in seen
    first.kill()
    first.wait(60)
    assert read_line(second) == in_hand
    assert read_line(second) == "done"


def test_a_failed_workers_page_goes_to_another(store: entrepot.Store, members: int) -> None:
    failing, other = store.pages("x", 2)
    assert next(failing)[0] == 0
    with pytest.raises(KeyError), failing:
        raise KeyError
    assert sorted(int(page[0]) for page in other) == list(range(members))


def test_another_collection_of_the_name_has_runs_of_its_own(store: entrepot.Store, members: int) -> None:
    assert len(list(store.pages("x")[0])) == members
    store.delete(store.resolve("x"), members=True)
    parts = store.collection("x")
    parts.put(np.zeros(10), index=0)
    parts.seal(1)
    assert len(list(store.pages("x")[0])) == 1


def test_pages_of_a_shuffle(store: entrepot.Store) -> None:
    shuffle = store.shuffle("s", 4)
    with shuffle.writer() as writer:
        writer.append(pa.table({"n": np.arange(1000)}), by="n")
    shuffle.seal()
    rows = [batch.num_rows for blob in store.pages("s")[0] for batch in entrepot.Page(blob.view).batches()]
    assert sum(rows) == 1000


def test_errors(store: entrepot.Store, members: int) -> None:
    with pytest.raises(Timeout):
        store.pages("absent", timeout=0.01)
    store.put([1], name="value")
    with pytest.raises(InvalidArgument, match="is no collection"):
        store.pages("value")
    with pytest.raises(InvalidArgument, match="at least 1"):
        store.pages("x", 0)
    store.pages("x")
    store.stream(f"pages:x:{store.generation_of(store.resolve('x'))}:").remove()
    with pytest.raises(StreamLost, match="restart=True"):
        store.pages("x", timeout=0)
    assert len(list(store.pages("x", restart=True)[0])) == members
