"""Objects of one host, read on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import raw_objects
from entrepot.errors import ObjectLost, ObjectNotFound, StoreFull, Timeout
from entrepot_io.values import get_value, put_value

pytestmark = pytest.mark.timeout(180)


def shown(host: Any, oid: entrepot.ObjectID) -> list[tuple[str, bool]]:
    return [(place.host, place.is_live) for place in host.store.locate(oid)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"few bytes",
        b"x" * 100_000,
        {"a": [1, 2, 3], "b": None},
        np.arange(3_000_000).reshape(3, -1),
        pa.table({"number": range(100_000), "text": ["x", None] * 50_000}),
    ],
    ids=["no bytes", "small bytes", "bytes", "dict", "array", "table"],
)
def test_an_object_is_read_by_its_id(two_hosts: Any, value: Any) -> None:
    a, b = two_hosts
    oid = a.store.put(value)
    a.store.publish(oid)
    read = b.store.get(oid)
    assert np.array_equal(read, value) if isinstance(value, np.ndarray) else read == value
    assert b.store.exists(oid)
    assert raw_objects.read(b.store, oid).tree == raw_objects.read(a.store, oid).tree


def test_names_are_published_and_read(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    with a.store.session("run") as session:
        session.put({"v": 1}, name="result")
    reader = b.store.session("run")
    assert reader.get_by_name("result", timeout=30) == {"v": 1}
    with pytest.raises(ObjectNotFound):
        reader.get_by_name("result", remote=False)
    with pytest.raises(ObjectNotFound):
        b.store.get_by_name("result")  # of another session
    with a.store.session("run") as session:
        session.put({"v": 2}, name="result", replace=True)
    wait_until(lambda: reader.get_by_name("result") == {"v": 2}, "the new binding to be published")
    reader.close()


def test_a_collection_is_read_member_by_member(two_hosts: Any) -> None:
    a, b = two_hosts
    builder = a.store.collection("parts")
    for index in range(20):
        builder.put(np.full(50_000, index), index=index)
    builder.seal()
    collection = b.store.get_by_name("parts", timeout=30)
    assert [int(part[0]) for part in collection] == list(range(20))
    assert int(collection[7][0]) == 7


def test_what_a_cluster_session_holds_is_published(two_hosts: Any) -> None:
    a, b = two_hosts
    with entrepot.connect(a.address, session="shared", cluster=True) as store:
        oid = store.put([1, 2])
    unpublished = a.store.put([3])
    assert b.store.get(oid, timeout=30) == [1, 2]
    with pytest.raises(ObjectNotFound, match="no other store of the cluster has published"):
        b.store.get(unpublished)


def test_a_reader_waits_for_what_is_published_later(two_hosts: Any) -> None:
    a, b = two_hosts
    oid = a.store.derive("later")
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.append(b.store.get(oid, timeout=60)))
    reader.start()
    a.store.put("here", id=oid, name="later")
    reader.join(60)
    assert read == ["here"]


def test_readers_that_wait_do_not_hold_up_others(two_hosts: Any) -> None:
    a, b = two_hosts
    waiting = [b.store.derive(f"later {number}") for number in range(150)]
    read: list[Any] = []

    def wait(oid: entrepot.ObjectID) -> None:
        with entrepot.connect(b.address) as store:
            read.append(store.get(oid, timeout=60))

    readers = [threading.Thread(target=wait, args=(oid,)) for oid in waiting]
    for reader in readers:
        reader.start()
    oid = a.store.put("now")
    a.store.publish(oid)
    assert b.store.get(oid, timeout=20) == "now"
    with entrepot.connect(a.address, cluster=True) as store:
        for number, later in enumerate(waiting):
            store.put(number, id=later)
    for reader in readers:
        reader.join(60)
    assert sorted(read) == list(range(150))


def test_a_gateway_does_not_keep_the_sessions_of_published_objects_open(two_hosts: Any) -> None:
    a, b = two_hosts
    with entrepot.connect(a.address, session="over", cluster=True) as store:
        oid = store.put("value")
    assert b.store.get(oid, timeout=30) == "value"
    raw = a.store._raw()
    assert raw.remove_unused_session("default", "over", 0) == (True, 0)


def test_a_reader_is_woken_at_once_by_a_seal_on_its_own_host(two_hosts: Any) -> None:
    _, b = two_hosts
    oids = [b.store.derive(f"local {number}") for number in range(20)]
    delays: list[float] = []
    for oid in oids:
        sealed_at: list[float] = []
        read_at: list[float] = []
        started = threading.Event()

        def read(oid: entrepot.ObjectID = oid, read_at: list[float] = read_at, started: Any = started) -> None:
            started.set()
            b.store.get(oid, timeout=60)
            read_at.append(time.monotonic())

        reader = threading.Thread(target=read)
        reader.start()
        started.wait()
        sealed_at.append(time.monotonic())
        b.store.put(1, id=oid)
        reader.join()
        delays.append(read_at[0] - sealed_at[0])
    assert sorted(delays)[len(delays) // 2] < 0.3  # the gateway looks again every half second


def test_with_a_timeout_it_is_kept(two_hosts: Any) -> None:
    _, b = two_hosts
    began = time.monotonic()
    with pytest.raises(Timeout):
        b.store.get(b.store.derive("never"), timeout=0.7)
    assert time.monotonic() - began > 0.69
    with pytest.raises(Timeout):
        b.store.get_by_name("never", timeout=0.7)


def test_remote_false_looks_only_here(two_hosts: Any) -> None:
    a, b = two_hosts
    oid = a.store.put("x")
    a.store.publish(oid)
    with pytest.raises(ObjectNotFound):
        b.store.get(oid, remote=False)
    with pytest.raises(ObjectNotFound):
        b.store.get_many([oid], remote=False)
    assert not b.store.exists(oid)
    assert b.store.get_many([oid]) == ["x"]


def test_concurrent_readers_share_one_fetch(two_hosts: Any) -> None:
    a, b = two_hosts
    oid = a.store.put(np.arange(4_000_000))
    a.store.publish(oid)
    barrier, generations = threading.Barrier(8), set[int]()

    def read() -> None:
        with entrepot.connect(b.address) as store:
            barrier.wait()
            value, generation = store.get_versioned(oid)
            assert int(value[-1]) == 3_999_999
            generations.add(generation)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(generations) == 1


def test_many_objects_in_one_get(two_hosts: Any) -> None:
    a, b = two_hosts
    values = [bytes([number % 256]) * (number * 700) for number in range(300)]
    with entrepot.connect(a.address, session="many", cluster=True) as store:
        oids = store.put_many(values)
    assert b.store.get(oids[-1], timeout=30) == values[-1]
    assert b.store.get_many(oids) == values


def test_a_prefetch_brings_it_here(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    oid = a.store.put(np.arange(1000))
    a.store.publish(oid)
    b.store.prefetch(oid, b.store.derive("unknown"))
    wait_until(lambda: b.store.exists(oid), "the object to be fetched")


def test_what_does_not_fit_is_refused_and_leaves_nothing(cluster: Any) -> None:
    a, b = cluster.host("a", size="256MiB"), cluster.host("b", size="64MiB")
    oid = a.store.put(np.zeros(12_000_000))
    a.store.publish(oid)
    with pytest.raises(StoreFull):
        b.store.get(oid)
    assert not b.store.exists(oid)
    assert b.store.status()["unsealed_bytes"] == 0


# --- references


def test_a_reference_is_read_on_another_host(two_hosts: Any) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "table", pa.table({"x": [1, 2, 3]}))
    assert get_value(reference, address=b.address).column("x").to_pylist() == [1, 2, 3]
    assert b.store.exists(reference.id)
    a.kill_gateway()
    assert get_value(reference, address=b.address).num_rows == 3  # from the copy


def test_a_reference_means_one_life_and_an_id_the_latest(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    first = put_value(a.store, "result", "first")
    assert get_value(first, address=b.address) == "first"
    second = put_value(a.store, "result", "second")  # a retry
    assert get_value(second, address=b.address) == "second"
    assert get_value(first, address=b.address) == "first"  # its copy is still here
    with pytest.raises(ObjectLost, match="was replaced"):
        get_value(first, address=a.address)


def test_the_same_id_with_other_content_on_two_hosts(two_hosts: Any) -> None:
    a, b = two_hosts
    of_b = put_value(b.store, "result", "of b")
    of_a = put_value(a.store, "result", "of a")
    assert of_b.id == of_a.id
    assert get_value(of_a, address=b.address) == "of a"
    assert get_value(of_b, address=b.address) == "of b"
    assert b.store.get(of_b.id) == "of b"
    assert get_value(of_b, address=a.address) == "of b"


def test_a_value_that_is_gone_says_where_it_was(two_hosts: Any) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "gone", "value")
    a.store.delete(reference.id)
    with pytest.raises(ObjectLost, match="host a"):
        get_value(reference, address=b.address)


def test_a_fetched_copy_is_found_when_its_origin_is_gone(cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b, c = cluster.host("a"), cluster.host("b"), cluster.host("c")
    reference = put_value(a.store, "kept", "value")
    a.store.publish(reference.id)
    assert get_value(reference, address=b.address) == "value"
    wait_until(lambda: ("b", True) in shown(a, reference.id), "the copy to be published")
    a.kill()
    wait_until(lambda: cluster.instances()["a"] is False, "the lost instance to be noticed")
    assert get_value(reference, address=c.address) == "value"
    assert c.store.get(reference.id) == "value"
