"""Plasma's own client against the front end, and both ways between Plasma and other clients of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20


def oid(number: int) -> entrepot.ObjectID:
    """The ID with this number in its first byte, as ``oid`` in stock_client.py."""
    return entrepot.ObjectID(bytes([number]) + bytes(19))


def raw_object(store: entrepot.Store, number: int) -> Any:
    from entrepot import raw_objects

    return raw_objects.read(store, oid(number))


def test_a_plasma_object_is_an_object_of_the_store(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    plasma = stock_client(new_front_end(64 * MIB))
    for number, (size, metadata) in enumerate([(5, b"meta"), (0, b"only"), (0, b""), (3 * MIB, b""), (100_000, b"x")]):
        plasma.run(f"b = client.create(oid({number}), {size}, metadata={metadata!r})")
        plasma.run(f"memoryview(b).cast('B')[:] = b'7' * {size}")
        plasma.run(f"client.seal(oid({number})); del b")
        with entrepot.connect(daemon.address) as store:
            stored = raw_object(store, number)
            assert stored.type == "plasma.Object"
            assert [bytes(buffer) for buffer in stored.buffers] == [b"7" * size, metadata]


def test_two_clients_share_an_object(new_front_end: Any, stock_client: Any) -> None:
    front_end = new_front_end(64 * MIB)
    writer, reader = stock_client(front_end), stock_client(front_end)
    writer.run("client.put_raw_buffer(b'abc' * 100000, oid(1), metadata=b'm')")
    assert reader.run("client.get_buffers([oid(1)], with_meta=True)[0][1].to_pybytes() == b'abc' * 100000")
    assert reader.run("client.get_metadata([oid(1)])[0].to_pybytes()") == b"m"
    assert reader.run("client.contains(oid(1)), client.contains(oid(2))") == (True, False)


def test_a_get_waits_for_another_plasma_client(new_front_end: Any, stock_client: Any) -> None:
    front_end = new_front_end(64 * MIB)
    reader, writer = stock_client(front_end), stock_client(front_end)
    reader.send("client.get_buffers([oid(1)])[0].to_pybytes()")
    writer.run("client.create_and_seal(oid(1), b'now', b'')")
    assert reader.receive() == b"now"


def test_a_get_waits_for_another_client_of_the_store(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    reader = stock_client(new_front_end(64 * MIB))
    reader.send("client.get_buffers([oid(1)])[0].to_pybytes()")
    with entrepot.connect(daemon.address) as store:
        store.put(b"from the store", id=oid(1))
        assert reader.receive() == b"from the store"


@pytest.mark.parametrize("size", [3, 5000, 2 * MIB], ids=["inline", "buffer", "large"])
def test_bytes_of_the_store_are_given_as_data(daemon: Any, new_front_end: Any, stock_client: Any, size: int) -> None:
    plasma = stock_client(new_front_end(64 * MIB))
    with entrepot.connect(daemon.address) as store:
        store.put(b"b" * size, id=oid(1))
        store.put(bytearray(b"a" * size), id=oid(2))
        with store.create(size, metadata=b"meta", id=oid(3)) as blob:
            blob.view[:] = b"c" * size
        store.put({"a": 1}, id=oid(4))
    assert plasma.run(f"client.get_buffers([oid(1)])[0].to_pybytes() == b'b' * {size}")
    assert plasma.run(f"client.get_buffers([oid(2)])[0].to_pybytes() == b'a' * {size}")
    assert plasma.run(f"client.get_buffers([oid(3)])[0].to_pybytes() == b'c' * {size}")
    assert plasma.run("client.get_metadata([oid(3)])[0].to_pybytes()") == b"meta"
    # Only a codec knows what the buffers of other values mean.
    assert plasma.run("client.get_buffers([oid(4)], timeout_ms=0)") == [None]


def test_what_is_put_beyond_the_arena_stays_readable(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    plasma = stock_client(new_front_end(16 * MIB))
    for number in range(32):
        plasma.run(f"client.create_and_seal(oid({number}), bytes([{number}]) * {MIB}, b'')")
    for number in range(32):
        assert plasma.run(f"client.get_buffers([oid({number})])[0].to_pybytes() == bytes([{number}]) * {MIB}"), number
    assert len(plasma.run("[i for i in range(32) if client.contains(oid(i))]")) == 32
    assert plasma.run("len(client.list())") == 32


def check_all_are_read(client: Any) -> None:
    """32 objects of 4 MiB can be read, one after the other."""
    for number in range(32):
        assert client.run(
            f"client.get_buffers([oid({number})], timeout_ms=20000)[0].to_pybytes() == bytes([{number}]) * {4 * MIB}"
        ), number


def test_twice_the_memory_is_spilled_and_read_back(
    new_daemon: Any, tmp_path: Path, new_front_end: Any, stock_client: Any
) -> None:
    store = new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"))
    plasma = stock_client(new_front_end(48 * MIB, store=store))
    for number in range(32):
        plasma.run(f"client.create_and_seal(oid({number}), bytes([{number}]) * {4 * MIB}, b'')")
    check_all_are_read(plasma)
    with entrepot.connect(store.address) as inspected:
        assert inspected.status()["spilled_bytes"] > 0


def test_an_arena_of_the_stores_size_leaves_room_for_the_others(
    new_daemon: Any, new_front_end: Any, stock_client: Any, tmp_path: Path
) -> None:
    """What was copied into the arena for a client that no longer holds it occupies nothing."""
    store = new_daemon("64MiB", "--spill-path", str(tmp_path / "spill"))
    client = stock_client(new_front_end(64 * MIB, store=store))
    for number in range(32):
        client.run(f"client.put_raw_buffer(bytes([{number}]) * {4 * MIB}, oid({number}))")
    check_all_are_read(client)
    with entrepot.connect(store.address) as other:
        oid = other.put(bytes(16 * MIB))
        assert other.get(oid) == bytes(16 * MIB)


def test_strict_drops_what_plasma_would_drop(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    plasma = stock_client(new_front_end(16 * MIB, "--strict"))
    for number in range(32):
        plasma.run(f"client.create_and_seal(oid({number}), bytes({MIB}), b'')")
    left = plasma.run("[i for i in range(32) if client.contains(oid(i))]")
    assert left == list(range(32 - len(left), 32))
    assert len(left) <= 16
    assert plasma.run("client.get_buffers([oid(0)], timeout_ms=10)") == [None]
    with entrepot.connect(daemon.address) as store:
        assert not store.exists(oid(0))


def test_what_a_client_holds_is_pinned_and_deleted_late(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    plasma = stock_client(new_front_end(64 * MIB))
    plasma.run(f"client.put_raw_buffer(b'held' * {MIB // 4}, oid(1))")
    plasma.run("b = client.get_buffers([oid(1)])[0]")
    with entrepot.connect(daemon.address) as store:
        assert store.status()["pinned_bytes"] >= MIB
        store.delete(oid(1))
        assert plasma.run("b.to_pybytes()[:8]") == b"heldheld"
    plasma.run("client.put_raw_buffer(b'other', oid(2)); c = client.get_buffers([oid(2)])[0]; client.delete([oid(2)])")
    assert plasma.run("client.contains(oid(2))") is True
    plasma.run("del c")
    assert plasma.run("client.contains(oid(2))") is False


def test_a_create_that_is_refused_pins_nothing(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    client = stock_client(new_front_end(64 * MIB))
    client.run(f"client.put_raw_buffer(bytes({MIB}), oid(1))")
    with pytest.raises(Exception, match="PlasmaObjectExists"):
        client.run("client.create(oid(1), 10)")
    with entrepot.connect(daemon.address) as store:
        assert store.status()["pinned_bytes"] == 0


def test_nothing_is_left_of_a_killed_client(
    daemon: Any, new_front_end: Any, stock_client: Any, wait_until: Callable[..., None]
) -> None:
    front_end = new_front_end(64 * MIB)
    states = [
        f"b = client.create(oid(1), {20 * MIB})",
        f"client.put_raw_buffer(bytes({20 * MIB}), oid(2)); b = client.get_buffers([oid(2)])[0]",
        f"client.put_raw_buffer(bytes({MIB}), oid(3)); b = client.get_buffers([oid(3)])[0]",
        "client.subscribe()",
    ]
    for state in states:
        client = stock_client(front_end)
        client.run(state)
        if "oid(3)" in state:
            stock_client(front_end).run("client.delete([oid(3)])")
        client.kill()
    client = stock_client(front_end)
    client.send("client.get_buffers([oid(9)])")  # waits
    client.kill()
    survivor = stock_client(front_end)
    wait_until(lambda: "held: 0\nunsealed: 0" in survivor.run("client.debug_string()"), "the objects to be released")
    assert survivor.run("client.contains(oid(1)), client.contains(oid(2)), client.contains(oid(3))") == (
        False,
        True,
        False,
    )
    survivor.run("client.delete([oid(2)])")
    with entrepot.connect(daemon.address) as store:
        wait_until(lambda: store.status()["pinned_bytes"] == 0, "the pins to end")
        wait_until(lambda: store.status()["objects"] == 0, "the objects to be gone")


def test_objects_survive_the_front_end(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    front_end = new_front_end(64 * MIB)
    client = stock_client(front_end)
    for number in range(8):
        client.run(f"client.put_raw_buffer(bytes([{number}]) * {MIB}, oid({number}))")
    front_end.kill()
    front_end.start()
    client = stock_client(front_end)
    for number in range(8):
        assert client.run(f"client.get_buffers([oid({number})])[0].to_pybytes() == bytes([{number}]) * {MIB}"), number
    assert client.run("len(client.list())") == 8


def test_the_front_end_survives_the_daemon(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    import os
    import signal

    client = stock_client(new_front_end(64 * MIB))
    client.run("client.put_raw_buffer(b'before' * 1000, oid(1)); held = client.get_buffers([oid(1)])[0]")
    client.run(f"b = client.create(oid(2), {MIB}); memoryview(b).cast('B')[:] = b'2' * {MIB}")
    with entrepot.connect(daemon.address) as store:
        os.kill(store.status()["pid"], signal.SIGKILL)
        assert client.run("client.seal(oid(2))") is None
        assert client.run("client.put_raw_buffer(b'after', oid(3))") is None
        assert client.run("held.to_pybytes() == b'before' * 1000") is True
        assert bytes(raw_object(store, 2).buffers[0]) == b"2" * MIB
        assert bytes(raw_object(store, 3).buffers[0]) == b"after"


def test_isolate_gives_the_store_a_copy(daemon: Any, new_front_end: Any, stock_client: Any) -> None:
    client = stock_client(new_front_end(64 * MIB, "--isolate"))
    client.run(
        f"b = client.create(oid(1), {MIB}); v = memoryview(b).cast('B'); v[:] = b'1' * {MIB}; client.seal(oid(1))"
    )
    with entrepot.connect(daemon.address) as store:
        data = raw_object(store, 1).buffers[0]
        client.run("v[:5] = b'wrong'")
        assert bytes(data[:5]) == b"11111"


def test_sigterm_ends_it_with_code_0(new_front_end: Any) -> None:
    front_end = new_front_end(MIB)
    assert front_end.stop() == 0
    assert not front_end.socket.exists()
