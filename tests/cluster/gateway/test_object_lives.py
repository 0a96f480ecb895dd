"""Which life of an object a reference and a bare ID mean, while copies are made, moved and written anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import origins
from entrepot.errors import ObjectLost, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot.origins import Life
from entrepot_cluster.gateway import object_sink
from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.gateway.object_sink import StoreSink
from entrepot_cluster.gateway.object_source import StoreObjects
from entrepot_cluster.gateway.session_stores import SessionStores
from entrepot_cluster.gateway.store_snapshot import StoreSnapshots
from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
from entrepot_cluster.transport.endpoints import ObjectHeader
from entrepot_io.values import get_value, put_value

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """A store without a gateway."""
    with entrepot.connect(daemon.address) as connected:
        yield connected


ELSEWHERE = Life("00112233445566778899aabbccddeeff", 7)


def _origin_of(source: StoreObjects, oid: ObjectID, generation: int, session: str) -> Life | None:
    origin = source.origin(oid, generation, "default", session)
    return None if origin is None else origin.lives[0]


@pytest.mark.parametrize("nbytes", [100, 1 << 20], ids=["small", "large"])
def test_a_copy_is_not_listed_or_sent_before_its_origin_is_recorded(
    store: entrepot.Store, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unrecorded = UnrecordedCopies()
    source = StoreObjects(store, unrecorded)
    snapshots = StoreSnapshots(store, source, unrecorded)
    sink = StoreSink(SessionStores(store.address), unrecorded)
    with entrepot.connect(store.address) as other:  # its tree is that of the copy
        original = other.put(np.full(nbytes, 3, dtype=np.uint8))
        pinned = source.open(original.binary, None)
        content = [bytes(view) for view in pinned.buffers]
        tree = Envelope("default", store.session_name, ("named",), (ELSEWHERE,), Envelope.unpack(pinned.tree).tree)
        pinned.close()
    oid = ObjectID(bytes(range(20)))
    seen: list[Any] = []
    waiting: list[threading.Thread] = []
    record_of = origins.record_of

    def while_unrecorded(*arguments: Any) -> Any:
        """What the others see between the seal of the copy and the record of its origin."""
        generation = store.generation_of(oid)
        snapshots.add_explicit(oid.binary, generation)
        seen.append(oid.binary in snapshots.take().places)
        reader = threading.Thread(target=lambda: seen.append(_origin_of(source, oid, generation, store.session_name)))
        reader.start()
        waiting.append(reader)
        return record_of(*arguments)

    monkeypatch.setattr(object_sink, "record_of", while_unrecorded)
    header = ObjectHeader(oid.binary, 7, tree.pack(), tuple(map(len, content)))
    if nbytes < 1000:
        assert sink.put([(header, [memoryview(part) for part in content])]) == [False]
    else:
        reception = sink.allocate(header)
        assert reception is not None
        for view, part in zip(reception.buffers, content, strict=True):
            view[:] = part
        assert sink.commit(reception) is None
    waiting[0].join(60)
    assert seen == [False, ELSEWHERE]
    assert snapshots.take().places[oid.binary].origin == ELSEWHERE


def test_waiting_for_a_record_ends() -> None:
    unrecorded = UnrecordedCopies()
    oid = bytes(20)
    with unrecorded.sealing([oid]), unrecorded.sealing([oid]):
        with pytest.raises(StoreUnavailable, match=r"the record of where it comes from for 0\.01 s"):
            unrecorded.wait(oid, 0.01)
        unrecorded.wait(bytes([1]) * 20, 0.01)
    assert oid not in unrecorded
    unrecorded.wait(oid, 0.01)


def test_what_was_moved_away_and_written_anew_is_read_by_both_references(two_hosts: Any) -> None:
    a, b = two_hosts
    old = put_value(a.store, "key", np.arange(50_000))
    a.store.migrate(old.id, "b")
    new = put_value(a.store, "key", np.arange(9))
    assert new.id == old.id
    for address in (a.address, b.address):
        assert get_value(old, address=address).shape == (50_000,)
        assert get_value(new, address=address).shape == (9,)
    b.store.delete(old.id)
    assert get_value(old, address=a.address).shape == (50_000,)  # its copy there


def test_what_was_replaced_is_lost_and_says_so(two_hosts: Any) -> None:
    a, b = two_hosts
    old = put_value(a.store, "key", [1])
    new = put_value(a.store, "key", [2])
    with pytest.raises(ObjectLost, match="replaced by a later attempt"):
        get_value(old, address=a.address)
    with pytest.raises(ObjectLost):
        get_value(old, address=b.address)
    assert get_value(new, address=b.address) == [2]


def test_what_was_moved_away_and_back_is_read_by_its_reference(cluster: Any) -> None:
    a, b, c = cluster.host("a"), cluster.host("b"), cluster.host("c")
    reference = put_value(a.store, "key", np.arange(50_000))
    a.store.migrate(reference.id, "b")
    b.store.migrate(reference.id, "a")
    for host in (a, b, c):
        assert get_value(reference, address=host.address).shape == (50_000,)


def test_a_reference_to_a_copy_follows_it(cluster: Any) -> None:
    a, b, c = cluster.host("a"), cluster.host("b"), cluster.host("c")
    first = put_value(a.store, "key", np.arange(50_000))
    assert get_value(first, address=b.address).shape == (50_000,)
    again = put_value(b.store, "key", np.arange(50_000), replace=False)  # a retry on another host: the same content
    assert again.id == first.id
    b.store.migrate(again.id, "c")
    a.store.delete(first.id)
    for host in (a, b, c):
        assert get_value(again, address=host.address).shape == (50_000,)
        assert get_value(first, address=host.address).shape == (50_000,)


@pytest.mark.exhaustive
def test_a_bare_id_means_what_was_published_last_however_soon_its_copy_is_published(cluster: Any) -> None:
    a, b, c = cluster.host("a"), cluster.host("b"), cluster.host("c")
    for number in range(1, 31):
        oid = a.store.put(number, name=f"name {number}")
        a.store.publish(oid)
        assert b.store.get(oid) == number
        b.store.publish(oid)  # as a copy, though it has just been sealed
        a.store.put(-number, id=oid, replace=True)
        a.store.publish(oid)
        assert c.store.get(oid) == -number
