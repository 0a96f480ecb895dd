"""Values that readers get: immutable, of the same type, valid for as long as they are held."""

from __future__ import annotations

import gc
import signal
from typing import Any

import entrepot
import numpy as np
import pytest

MIB = 1 << 20


def test_a_value_is_read_only(store: entrepot.Store) -> None:
    value = store.get(store.put(np.arange(100_000)))
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.flags.writeable = True


def test_a_write_to_sealed_memory_kills_only_who_tried(store: entrepot.Store, python: Any) -> None:
    oid = store.put(np.arange(100_000))
    done = python(
        """
        import ctypes
        value = store.get(sys.argv[1])
        print(int(value[5]), flush=True)
        ctypes.memset(value.ctypes.data, 0xff, 8)
        print("written", flush=True)
        """,
        oid,
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "5\n"
    assert np.array_equal(store.get(oid), np.arange(100_000))


def test_the_creators_own_pages_are_read_only_at_seal(store: entrepot.Store, python: Any) -> None:
    done = python(
        """
        import ctypes
        import numpy
        with store.create(200_000) as blob:
            array = numpy.frombuffer(blob.view, dtype=numpy.uint8)
            array[:] = 7
            address = array.ctypes.data
        print(blob.id, flush=True)
        ctypes.memset(address, 0xff, 8)
        """
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr


def test_copy_on_write_changes_only_ones_own(store: entrepot.Store) -> None:
    for size in (10, 5_000, 1_000_000):
        oid = store.put(np.arange(size))
        own_copy, shared = store.get(oid, copy="on_write"), store.get(oid)
        own_copy[3] = -1
        assert own_copy[3] == -1
        assert own_copy[4] == 4
        assert np.array_equal(shared, np.arange(size))
        assert np.array_equal(store.get(oid, copy="on_write"), np.arange(size))


def test_copy_always_pins_nothing(store: entrepot.Store, wait_until: Any) -> None:
    oid = store.put(np.arange(1_000_000))
    own_copy = store.get(oid, copy="always")
    own_copy[0] = 9
    gc.collect()
    assert store.info(oid).pins == 0
    assert store.delete(oid)
    wait_until(lambda: store.status()["payload_bytes"] == 0, "the memory to be free")
    assert own_copy[0] == 9
    assert own_copy[999_999] == 999_999


@pytest.mark.parametrize("how", ["delete", "replace", "session"])
def test_a_held_value_survives(store: entrepot.Store, wait_until: Any, how: str) -> None:
    session = store.session("run", ttl=3600)
    oid = session.put(np.full(2_000_000, 7), id=session.derive("key"))
    value = session.get(oid)
    if how == "delete":
        assert session.delete(oid)
        assert not session.exists(oid)
    elif how == "replace":
        session.put(np.full(2_000_000, 8), id=oid, replace=True)
        assert session.get(oid)[0] == 8
        assert session.delete(oid)
    else:
        store.remove_session("run")
        assert not store.exists(oid)
    for _ in range(30):  # other puts use all available memory
        store.delete(store.put(np.zeros(4 * MIB)))
    assert (value == 7).all()
    assert store.status()["deferred_frees"] >= 1
    del value
    gc.collect()
    wait_until(lambda: store.status()["deferred_frees"] == 0, "the last pin's object to be freed")
    wait_until(lambda: store.status()["payload_bytes"] == 0, "the memory to be free")


def test_values_survive_close(daemon: Any) -> None:
    store = entrepot.connect(daemon.address)
    value = store.get(store.put(np.arange(100_000)))
    part = value[10:20]
    store.close()
    del store
    gc.collect()
    with entrepot.connect(daemon.address) as other:
        for _ in range(30):
            other.delete(other.put(np.zeros(4 * MIB)))
    assert np.array_equal(value, np.arange(100_000))
    del value
    gc.collect()
    assert part.tolist() == list(range(10, 20))


def test_a_pin_a_process_and_object(store: entrepot.Store) -> None:
    oid = store.put(np.arange(100_000))
    values = [store.get(oid) for _ in range(50)]
    info = store.info(oid)
    assert info.pins == 1
    assert info.pinned_by[0]["pins"] == 1
    assert len({value.ctypes.data for value in values}) == 1
    del values
    gc.collect()
    assert store.info(oid).pins == 0


def test_get_of_a_mapped_object_asks_nobody(store: entrepot.Store, daemon: Any) -> None:
    oid = store.put(np.arange(100_000))
    store.get(oid)
    daemon.stop()
    assert store.get(oid)[9] == 9


def test_blobs_keep_bytes_and_metadata(store: entrepot.Store) -> None:
    for size in (0, 1, 16_384, 16_385, 3 * MIB):
        content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        with store.create(size, metadata=b"meta", name=f"blob-{size}") as blob:
            assert len(blob.view) == size
            blob.view[:] = content
        loaded = store.get_by_name(f"blob-{size}")
        assert isinstance(loaded, entrepot.Blob)
        assert (len(loaded), loaded.metadata) == (size, b"meta")
        assert bytes(loaded) == content
        assert loaded.view.readonly
        copied = store.get(store.put(loaded))
        assert bytes(copied) == bytes(loaded)


def test_an_exception_drops_the_blob(store: entrepot.Store, wait_until: Any) -> None:
    class Planned(Exception):
        pass

    with pytest.raises(Planned), store.create(8 * MIB, name="half") as blob:  # noqa: PT012
        blob.view[:4] = b"half"
        raise Planned
    assert not store.exists(blob.id)
    with pytest.raises(entrepot.InvalidArgument, match="dropped"):
        blob.seal()
    with pytest.raises(ValueError, match="released"):
        blob.view[0]
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the lease to be returned")


def test_plain_values(store: entrepot.Store) -> None:
    values: list[Any] = [b"", b"x", b"y" * 100_000, "text", 7, 2**70, None, [1, (2, {"a": b"b"})], {1: 2.5}]
    oids = store.put_many(values)
    loaded = store.get_many(oids)
    assert loaded == values
    assert [type(value) for value in loaded] == [type(value) for value in values]


def test_many_objects(store: entrepot.Store) -> None:
    values = [np.full(100 + number, number) for number in range(2000)]
    oids = store.put_many(values)
    loaded = store.get_many(oids, timeout=5)
    assert all(np.array_equal(loaded_value, value) for loaded_value, value in zip(loaded, values, strict=True))
    assert store.status()["objects"] == 2000
    assert len(store.list()) == 2000
