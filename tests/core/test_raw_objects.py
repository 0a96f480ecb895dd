"""Objects as raw parts: parts read here and written there form the same object."""

from __future__ import annotations

import zlib

import entrepot
import numpy as np
import pytest
from entrepot import _core, inventory, raw_objects
from entrepot.errors import InvalidArgument


def test_raw_buffers_make_the_same_object(store: entrepot.Store) -> None:
    value = {"a": np.arange(100_000), "b": np.arange(5000), "c": np.arange(50), "d": np.empty(0)}
    source = raw_objects.read(store, store.put(value))
    oid = entrepot.ObjectID.random()
    with raw_objects.RawObjectWriter(store, [buffer.nbytes for buffer in source.buffers]) as writer:
        for target_buffer, source_buffer in zip(writer.buffers, source.buffers, strict=True):
            target_buffer[:] = source_buffer
        receipt = writer.seal(oid, source.tree, name="copy")
    assert (receipt.id, receipt.nbytes, receipt.existed) == (oid, source.nbytes, False)
    loaded = store.get_by_name("copy")
    assert all((loaded[key] == value[key]).all() for key in value)
    copy = store.get(oid, copy="on_write")
    copy["a"][0] = 7  # its pages can be mapped privately, like those of a put
    assert store.get(oid)["a"][0] == 0


def test_parts_that_are_not_sealed_are_given_back(store: entrepot.Store) -> None:
    used = store.status()["used_bytes"]
    for _ in range(50):
        with raw_objects.RawObjectWriter(store, [40 << 20, 30_000]) as writer:
            writer.buffers[0][:4] = b"some"
    assert store.status()["used_bytes"] == used
    assert not store.list()


def test_shared_parts_are_stored_once(store: entrepot.Store) -> None:
    first = raw_objects.read(store, store.put(np.arange(2_000_000)))
    used = store.status()["used_bytes"]
    with raw_objects.RawObjectWriter(store, [first.nbytes], {0: first.buffers[0]}) as writer:
        oid = writer.seal(entrepot.ObjectID.random(), first.tree).id
    assert store.status()["used_bytes"] - used < 100_000
    store.delete(first.id)
    assert store.get(oid)[-1] == 1_999_999


def test_the_same_content_is_success_and_other_content_is_not(store: entrepot.Store) -> None:
    oid = store.put(np.arange(100_000))
    source = raw_objects.read(store, oid)
    with raw_objects.RawObjectWriter(store, [source.nbytes]) as writer:
        writer.buffers[0][:] = source.buffers[0]
        assert writer.seal(oid, source.tree).existed
    with raw_objects.RawObjectWriter(store, [source.nbytes]) as writer:
        writer.buffers[0][:] = b"\1" * source.nbytes
        with pytest.raises(entrepot.ObjectExists):
            writer.seal(oid, source.tree)
    assert store.get(oid)[-1] == 99_999


def test_buffers_from_elsewhere_are_refused(store: entrepot.Store) -> None:
    client = store._raw()
    tree = raw_objects.read(store, store.put(np.arange(100_000))).tree
    item = (bytes(20), store._session_number, False, False, "", tree, (bytes(100_000),))
    with pytest.raises(entrepot.InvalidArgument, match="is neither in a blob of this call"):
        client.seal_parts([client.create(100_000, 10)], item)
    with pytest.raises(entrepot.InvalidArgument, match="16 KiB"):
        client.seal_parts([client.create(100, 10)], item)
    blob = client.create(100_000, 10)
    blob.drop()
    with pytest.raises(entrepot.InvalidArgument, match="open blob"):
        client.seal_parts([blob], item)
    with pytest.raises(entrepot.InvalidArgument, match="small"):
        raw_objects.RawObjectWriter(store, [100, 100])
    with pytest.raises(entrepot.InvalidArgument, match="has 7 bytes, not 100000"):
        raw_objects.RawObjectWriter(store, [100_000], {0: memoryview(bytes(7))})


def test_small_objects_in_one_round_trip(store: entrepot.Store) -> None:
    ids = store.put_many([b"a", {"b": np.arange(20)}])
    sources = [raw_objects.read(store, oid) for oid in ids]
    new_ids = entrepot.ObjectID.random_many(2)
    small = [
        raw_objects.SmallObject(oid, item.tree, [bytes(buffer) for buffer in item.buffers], name)
        for oid, item, name in zip(new_ids, sources, ("", "b"), strict=True)
    ]
    assert [item.existed for item in raw_objects.put_small(store, small)] == [False, False]
    assert [item.existed for item in raw_objects.put_small(store, small)] == [True, True]
    assert store.get(new_ids[0]) == b"a"
    assert store.get_by_name("b")["b"][-1] == 19


def test_the_list_reads_nothing(store: entrepot.Store) -> None:
    oid = store.put(np.arange(100_000), name="n")
    (entry,) = raw_objects.iter_entries(store)
    assert (
        entry
        == raw_objects.entry_of(store, oid)
        == raw_objects.ObjectEntry(oid, store.generation_of(oid), 800_000, ("n",))
    )


def test_the_list_takes_a_pattern(store: entrepot.Store) -> None:
    store.put(b"x", name="a/1")
    store.put(b"x", name="b/1")
    assert [entry.names for entry in raw_objects.iter_entries(store, "a/*")] == [("a/1",)]
    with pytest.raises(InvalidArgument, match="pattern of a list"):
        list(raw_objects.iter_entries(store, "\udc80"))


def test_the_sessions_of_all_scopes(store: entrepot.Store) -> None:
    with entrepot.connect(store.address, scope="another", session="run"):
        listed = {(info.scope, info.session) for info in inventory.sessions(store)}
    assert {("another", "run"), (store.scope, store.session_name)} <= listed


def test_the_checksum(store: entrepot.Store) -> None:
    assert _core.crc32c(b"123456789") == 0xE3069283
    data = np.random.default_rng(0).bytes(1_000_000)
    assert _core.crc32c(data) == _core.crc32c(memoryview(data)[300_000:], _core.crc32c(data[:300_000]))
    assert _core.crc32c(b"") == 0 != zlib.crc32(data)


def test_many_objects_are_asked_about_at_once(store: entrepot.Store) -> None:
    ids = [store.put(np.arange(3000 + n)) for n in range(3)]
    store.delete(ids[1])
    missing = entrepot.ObjectID.random()
    asked = [*ids, missing]
    generations = raw_objects.generations_of(store, asked)
    assert generations == [raw_objects.generation_of(store, oid) for oid in asked]
    assert [generation is None for generation in generations] == [False, True, False, True]
    present = raw_objects.read_present(store, asked)
    assert [each is not None for each in present] == [True, False, True, False]
    assert present[2] is not None
    assert bytes(present[2].buffers[0]) == np.arange(3002).tobytes()
    assert raw_objects.generations_of(store, []) == []
    assert raw_objects.read_present(store, []) == []
