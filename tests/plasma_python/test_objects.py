"""What is in the store: ``get`` of many, ``list``, ``evict``, ``delete``, ``hash``, quotas."""

from __future__ import annotations

import gc
import time
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import plasma


def _sealed(client: plasma.PlasmaClient, size: int, metadata: bytes = b"") -> plasma.ObjectID:
    oid = plasma.ObjectID.from_random()
    client.create(oid, size, metadata)
    client.seal(oid)
    return oid


@pytest.mark.parametrize("timeout_ms", [0, 1, 50])
def test_what_is_not_there_in_time_is_marked(client: plasma.PlasmaClient, timeout_ms: int) -> None:
    present, absent = client.put("there"), plasma.ObjectID.from_random()
    began = time.monotonic()
    assert client.get([present, absent, present], timeout_ms) == ["there", plasma.ObjectNotAvailable, "there"]
    assert client.get(absent, timeout_ms) is plasma.ObjectNotAvailable
    first, second = client.get_buffers([absent, present], timeout_ms)
    assert first is None
    assert second.size > 0
    assert client.get_buffers([absent], timeout_ms, with_meta=True) == [(None, None)]
    assert client.get_metadata([absent, present], timeout_ms)[0] is None
    assert time.monotonic() - began >= 5 * (timeout_ms - 1) / 1000
    assert client.get([]) == client.get_buffers([]) == []


def test_get_waits_for_another_process(client: plasma.PlasmaClient, start: Any) -> None:
    ids = [plasma.ObjectID.from_random() for _ in range(3)]
    writer = start("sys.stdin.readline(); client.put(1, ids[0]); client.put(2, ids[1]); client.put(3, ids[2])", *ids)
    assert client.get(ids, timeout_ms=0) == [plasma.ObjectNotAvailable] * 3
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert client.get(ids) == [1, 2, 3]


def test_list_has_the_former_layout(client: plasma.PlasmaClient, output: Any) -> None:
    before = time.time()
    oid, unsealed = _sealed(client, 11, b"1234567"), plasma.ObjectID.from_random()
    client.create(unsealed, 5, b"1")
    listed = client.list()
    assert set(listed) == {oid, unsealed}
    assert before - 1 <= listed[oid].pop("create_time") <= time.time()
    entry = {"data_size": 11, "metadata_size": 7, "ref_count": 0, "construct_duration": 0, "state": "sealed"}
    assert listed[oid] == entry
    assert before - 1 <= listed[unsealed].pop("create_time") <= time.time()
    assert listed[unsealed] == {**entry, "data_size": 5, "metadata_size": 1, "ref_count": 1} | {
        "construct_duration": -1,
        "state": "created",
    }
    held = client.get_buffers([oid])
    assert client.list()[oid]["ref_count"] == 1
    code = "held = client.get_buffers(ids); print(client.list()[ids[0]]['ref_count'], len(client.list()))"
    assert output(code, oid) == "2 1\n"  # what this process has not sealed is not seen there
    del held
    gc.collect()
    assert client.list()[oid]["ref_count"] == 0


def test_a_deleted_object_is_gone_at_once_and_stays_readable(client: plasma.PlasmaClient, output: Any) -> None:
    ids = [client.put(np.arange(100_000)) for _ in range(3)]
    value = client.get(ids[0])
    client.delete([*ids, plasma.ObjectID.from_random()])
    assert not any(client.contains(oid) for oid in ids)
    assert output("print(client.get(ids, timeout_ms=0) == [plasma.ObjectNotAvailable] * 3)", *ids) == "True\n"
    client.put("another", ids[0])
    assert value.sum() == sum(range(100_000))
    assert client.get(ids[0]) == "another"
    client.delete([])


def test_evict_drops_the_least_recently_used(client: plasma.PlasmaClient) -> None:
    ids = [_sealed(client, 1000 + index, b"m") for index in range(5)]
    assert client.evict(1) == 1001
    assert client.contains(ids[0]) is False
    held = client.get_buffers([ids[1]])
    assert client.evict(1) == 1003  # the next one is held
    del held
    gc.collect()
    assert client.evict(2000) == 1004 + 1005
    assert client.evict(1) == 1002
    assert client.evict(1) == 0
    assert client.list() == {}
    assert client.evict(0) == 0


def test_evict_knows_what_was_read_since(new_daemon: Any, socket_folder: Any, wait_until: Any) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"), "--spill-quota", "64MiB")
    client, store = plasma.connect(daemon.address), entrepot.connect(daemon.address)
    ids = [_sealed(client, 20_000 + index) for index in range(3)]
    assert client.evict(0) == 0

    def are_old() -> bool:
        return all(store.info(oid.binary()).eviction["idle_seconds"] > 0.2 for oid in ids)

    wait_until(are_old, "the objects to be a little old")
    client.get_buffers([ids[0]])
    gc.collect()
    assert client.evict(1) == 20_001
    newest = _sealed(client, 20_003)
    assert client.evict(30_000) == 20_002 + 20_000
    assert client.contains(newest)
    client.disconnect()
    store.close()


def test_evict_leaves_entrepots_own_values(client: plasma.PlasmaClient, store: Any) -> None:
    own = store.put(np.zeros(10_000))
    store.put(b"small")
    kept = _sealed(client, 50)
    store.hint(kept.binary(), keep=True)
    _sealed(client, 70)
    assert client.evict(1 << 30) == 70
    assert store.exists(own)
    assert client.contains(kept)


def test_hashes_are_those_of_data_and_metadata(client: plasma.PlasmaClient) -> None:
    ids = [client.put_raw_buffer(data, metadata=meta) for data, meta in ((b"a", b"b"), (b"a", b"b"), (b"ab", b""))]
    hashes = [client.hash(oid) for oid in ids]
    assert len(hashes[0]) == 8
    assert hashes[0] == hashes[1] != hashes[2]
    with pytest.raises(plasma.PlasmaObjectNotFound, match="is sealed"):
        client.hash(plasma.ObjectID.from_random())


def test_a_quota_limits_what_one_client_creates(client: plasma.PlasmaClient, socket_name: str) -> None:
    client.set_client_options("greedy", 1000)
    first = _sealed(client, 600)
    unsealed = plasma.ObjectID.from_random()
    client.create(unsealed, 100)
    for attempt in (
        lambda: client.create(plasma.ObjectID.from_random(), 301),
        lambda: client.put_raw_buffer(bytes(301)),
        lambda: client.put(np.zeros(10_000)),
        lambda: client.create_and_seal(plasma.ObjectID.from_random(), bytes(300), b"m"),
    ):
        with pytest.raises(plasma.PlasmaStoreFull, match=r"'greedy': 700 of 1000"):
            attempt()
    plasma.connect(socket_name).put_raw_buffer(bytes(5000))  # another client's is its own
    client.delete([first])
    client.put_raw_buffer(bytes(900))
    client.set_client_options("greedy", 0)
    client.put_raw_buffer(bytes(9000))


def test_the_store_describes_itself(client: plasma.PlasmaClient, socket_name: str) -> None:
    assert client.store_capacity() == 256 << 20
    assert client.store_socket_name == socket_name
    client.put(1)
    assert "objects: 1\n" in client.debug_string()
    assert f"capacity bytes: {256 << 20}" in client.debug_string()
    assert socket_name in repr(client)
    with pytest.raises(NotImplementedError, match="C interface"):
        client.to_capsule()
    with pytest.raises(TypeError, match=r"entrepot\.plasma\.connect"):
        plasma.PlasmaClient()
