"""Small copies that arrive together: each has its own outcome, and those that wait for one of them get it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import CorruptData, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import Life, copy_of
from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.gateway.object_sink import StoreSink
from entrepot_cluster.gateway.object_source import StoreObjects
from entrepot_cluster.gateway.pending_fetch import PendingFetch
from entrepot_cluster.gateway.session_stores import SessionStores
from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
from entrepot_cluster.transport.endpoints import ObjectHeader, Wanted

ELSEWHERE = "00112233445566778899aabbccddeeff"


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """A store without a gateway."""
    with entrepot.connect(daemon.address) as connected:
        yield connected


def test_each_of_them_has_an_outcome(store: entrepot.Store) -> None:
    unrecorded = UnrecordedCopies()
    source = StoreObjects(store, unrecorded)
    original = store.put(np.arange(100))
    (pinned,) = source.open_present([Wanted(original.binary)])
    if pinned is None:  # the daemon is asked where it belongs, and that is remembered
        source.open(original.binary, None).close()
        (pinned,) = source.open_present([Wanted(original.binary)])
    assert pinned is not None
    tree, content = Envelope.unpack(pinned.tree).tree, [bytes(view) for view in pinned.buffers]
    pinned.close()

    ids = [ObjectID.random() for _ in range(5)]
    new, other_content, wrong_life, _, second_new = ids
    here = store.put("something else", id=other_content)
    lives = {oid.binary: Life(ELSEWHERE, number + 1) for number, oid in enumerate(ids)}

    def arriving(oid: ObjectID, life: Life) -> tuple[ObjectHeader, list[memoryview]]:
        packed = Envelope("default", store.session_name, (), (life,), tree).pack()
        header = ObjectHeader(oid.binary, life.generation, packed, tuple(map(len, content)))
        return header, [memoryview(part) for part in content]

    objects = [arriving(oid, lives[oid.binary]) for oid in ids]
    objects[2] = arriving(wrong_life, Life(ELSEWHERE, 77))
    objects[3] = (objects[3][0]._replace(tree=b"no envelope"), objects[3][1])
    sink = StoreSink(SessionStores(store.address), unrecorded, lives=lives)
    outcomes = sink.put(objects)
    assert [type(outcome) for outcome in outcomes] == [bool, bool, ObjectNotFound, CorruptData, bool]
    assert set(sink.targets) == {new.binary, other_content.binary, second_new.binary}
    assert store.get(here) == "something else"
    for oid in (new, other_content, second_new):
        copy = copy_of(store, oid, lives[oid.binary])
        assert copy is not None
        assert copy == sink.targets[oid.binary]
        assert (copy == oid) == (oid != other_content)
        assert (store.get(copy) == np.arange(100)).all()
    # The same again: all of them are here.
    again = StoreSink(SessionStores(store.address), unrecorded, lives=lives)
    assert again.put([objects[0], objects[4]]) == [True, True]
    assert again.targets == {oid.binary: oid for oid in (new, second_new)}


def test_whoever_waits_for_one_is_woken_by_it_alone() -> None:
    ended = threading.Condition()
    first, second = PendingFetch(ended), PendingFetch(ended)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(second.result()))
    waiting.start()
    first.set_result(ObjectNotFound("it is not there"))
    assert isinstance(first.result(), ObjectNotFound)
    assert waiting.is_alive() or got  # it does not end because of the other one
    assert got == []
    oid = ObjectID.random()
    second.set_result(oid)
    waiting.join(60)
    assert got == [oid]
    assert second.done()
