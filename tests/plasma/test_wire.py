"""Requests that Plasma's Python client never makes, and answers that it hides, by messages of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import entrepot
import psutil
import pytest
from plasma_wire import HEADER, WireClient, decode, frame

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
SUBSCRIBE = 23
# The enumeration's values are printed by name.
OK, EXISTS, OUT_OF_MEMORY = "Ok", "ObjectExists", "OutOfMemory"


def oid(number: int) -> str:
    """An object ID of 20 characters."""
    return f"wire-object-{number:08}"


def create(client: WireClient, number: int, data_bytes: int, metadata_bytes: int = 0, **fields: Any) -> dict[str, Any]:
    """Create an object; the descriptor, if one comes, is left in the socket."""
    request = {"object_id": oid(number), "evict_if_full": True, "data_size": data_bytes}
    return client.ask("Create", **request, metadata_size=metadata_bytes, **fields)


def put(client: WireClient, number: int, data: str = "data", metadata: str = "") -> str:
    """Create and seal an object by one message; returns the error."""
    fields = {"object_id": oid(number), "evict_if_full": True, "data": data, "metadata": metadata}
    return str(client.ask("CreateAndSeal", **fields, digest="digest--")["error"])


def has(client: WireClient, number: int) -> bool:
    return bool(client.ask("Contains", object_id=oid(number))["has_object"])


def place(client: WireClient, number: int) -> dict[str, Any]:
    """Where an object is that is there; a missing one has the largest size."""
    (location,) = client.ask("Get", object_ids=[oid(number)], timeout_ms=0)["places"]
    return dict(location)


def read(descriptor: int, location: dict[str, Any]) -> tuple[bytes, bytes]:
    """Data and metadata of an object in a segment."""
    data = os.pread(descriptor, location["data_size"], location["data_offset"])
    return data, os.pread(descriptor, location["metadata_size"], location["metadata_offset"])


def test_abort_by_the_creator(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as other:
        for attempt in range(3):  # 36 MiB in all: the memory comes back, and the ID is free again
            assert create(client, 1, 12 * MIB)["error"] == OK
            if attempt == 0:
                os.close(client.take_descriptor())
            assert client.ask("Abort", object_id=oid(1)) == {"object_id": oid(1)}
            assert not has(other, 1)
        assert client.ask("Seal", object_id=oid(1), digest="digest--")["error"] == "ObjectNonexistent"


@pytest.mark.parametrize("request_name", ["Abort", "Seal"])
def test_an_object_of_another_client_is_out_of_reach(new_front_end: Any, request_name: str) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as writer, WireClient(front_end.socket) as other:
        created = create(writer, 1, 4)
        descriptor = writer.take_descriptor()
        other.send(f"{request_name}Request", object_id=oid(1))
        assert other.is_cut_off()
        os.pwrite(descriptor, b"mine", created["place"]["data_offset"])
        assert writer.ask("Seal", object_id=oid(1), digest="digest--")["error"] == OK
        assert read(descriptor, place(writer, 1)) == (b"mine", b"")
        os.close(descriptor)
    assert "is cut off" in front_end.log()
    assert oid(1).encode().hex() in front_end.log()


@pytest.mark.parametrize("request_name", ["Abort", "Seal"])
def test_what_is_sealed_stays_as_it_is(new_front_end: Any, request_name: str) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as other:
        assert put(client, 1) == OK
        client.send(f"{request_name}Request", object_id=oid(1))
        assert client.is_cut_off()
        assert has(other, 1)


def test_a_deferred_deletion_spares_what_others_put_meanwhile(daemon: Any, new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, entrepot.connect(daemon.address) as store:
        assert put(client, 1, "first") == OK
        assert place(client, 1)["data_size"] == 5  # held from now on
        os.close(client.take_descriptor())
        assert client.ask("Delete", count=1, object_ids=[oid(1)])["errors"] == ["ObjectInUse"]
        store_id = entrepot.ObjectID(oid(1).encode())
        assert store.delete(store_id)
        store.put(b"second", id=store_id)
        client.send("ReleaseRequest", object_id=oid(1))
        assert has(client, 1)
        assert store.get(store_id) == b"second"


def test_create_and_seal(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as writer, WireClient(front_end.socket) as reader:
        assert put(writer, 1, "some data", "and more") == OK
        assert put(writer, 2, "", "") == OK
        assert put(reader, 1, "other data") == EXISTS
        location = place(reader, 1)
        descriptor = reader.take_descriptor()
        assert read(descriptor, location) == (b"some data", b"and more")
        os.close(descriptor)
        # The writer holds neither: the first one is held by the reader only.
        deleted = writer.ask("Delete", count=2, object_ids=[oid(1), oid(2)])
        assert deleted["errors"] == ["ObjectInUse", OK]
        reader.send("ReleaseRequest", object_id=oid(1))
        assert not has(reader, 1)


def batch(client: WireClient, numbers: list[int], **fields: Any) -> str:
    request: dict[str, Any] = {
        "object_ids": [oid(number) for number in numbers],
        "evict_if_full": True,
        "data": [f"data of {number}" for number in numbers],
        "metadata": [f"metadata of {number}" for number in numbers],
        "digests": ["digest--"] * len(numbers),
    }
    return str(client.ask("CreateAndSealBatch", **request | fields)["error"])


def test_create_and_seal_batch(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as writer, WireClient(front_end.socket) as reader:
        assert batch(writer, [1, 2, 3]) == OK
        places = [place(reader, number) for number in (1,)]
        descriptor = reader.take_descriptor()
        places += [place(reader, number) for number in (2, 3)]
        for number, location in enumerate(places, 1):
            assert read(descriptor, location) == (f"data of {number}".encode(), f"metadata of {number}".encode())
        os.close(descriptor)
        assert batch(writer, []) == OK


@pytest.mark.parametrize("numbers", [[4, 1, 5], [4, 5, 5]], ids=["one exists", "one twice"])
def test_a_batch_fails_as_a_whole(new_front_end: Any, numbers: list[int]) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client:
        assert put(client, 1) == OK
        assert batch(client, numbers) == EXISTS
        assert [has(client, number) for number in (1, 4, 5)] == [True, False, False]
        assert batch(client, [4, 5]) == OK


def test_a_batch_larger_than_the_arena_is_refused(new_front_end: Any) -> None:
    front_end = new_front_end(MIB)
    with WireClient(front_end.socket) as client:
        assert batch(client, [1, 2], data=["x" * (MIB // 2 + 1)] * 2) == OUT_OF_MEMORY
        assert not has(client, 1)
        assert put(client, 1, "x" * (MIB // 2)) == OK


def test_refreshed_objects_are_evicted_last(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB, "--strict")
    with WireClient(front_end.socket) as client:
        for number in (1, 2, 3):
            assert put(client, number, "x" * 1000) == OK
        # Those that are unknown are ignored.
        assert client.ask("RefreshLru", object_ids=[oid(9), oid(1)]) == {}
        assert client.ask("Evict", num_bytes=1001) == {"num_bytes": 2000}
        assert [has(client, number) for number in (1, 2, 3)] == [True, False, False]


def test_a_quota(new_front_end: Any) -> None:
    front_end = new_front_end(10 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as other:
        options = {"client_name": "limited", "output_memory_quota": 4 * MIB}
        assert client.ask("SetOptions", **options)["error"] == OK
        assert create(client, 1, 5 * MIB)["error"] == OUT_OF_MEMORY
        assert create(client, 1, 3 * MIB)["error"] == OK
        os.close(client.take_descriptor())
        refused = create(client, 2, 2 * MIB)  # it holds the first one, which cannot make room
        assert (refused["error"], refused["segment_bytes"]) == (OUT_OF_MEMORY, 0)
        assert create(other, 3, 5 * MIB)["error"] == OK
        os.close(other.take_descriptor())
        # Seven tenths of the memory may be promised, and no more, to all clients together, and to each once.
        assert other.ask("SetOptions", client_name="second", output_memory_quota=4 * MIB)["error"] == OUT_OF_MEMORY
        assert client.ask("SetOptions", client_name="again", output_memory_quota=MIB)["error"] == OUT_OF_MEMORY


def test_an_id_is_created_once(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as other:
        assert create(client, 1, 4)["error"] == OK
        os.close(client.take_descriptor())
        for again in (client, other):
            refused = create(again, 1, 4)
            assert (refused["object_id"], refused["error"]) == (oid(1), EXISTS)
            assert put(again, 1) == EXISTS
        assert client.ask("Seal", object_id=oid(1), digest="digest--") == {"object_id": oid(1), "error": OK}
        assert create(other, 1, 4)["error"] == EXISTS


@pytest.mark.parametrize("device", [1, -1])
def test_devices_are_refused_by_an_error(new_front_end: Any, device: int) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client:
        assert create(client, 1, 4, device=device)["error"] == OUT_OF_MEMORY
        assert not has(client, 1)
        assert create(client, 1, 4)["error"] == OK


@pytest.mark.parametrize(
    ("data_bytes", "metadata_bytes"), [(17 * MIB, 0), (0, 17 * MIB), (2**64 - 1, 2), (2**63, 2**63)]
)
def test_sizes_beyond_the_arena_are_refused(new_front_end: Any, data_bytes: int, metadata_bytes: int) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client:
        assert create(client, 1, data_bytes, metadata_bytes)["error"] == OUT_OF_MEMORY
        assert put(client, 1) == OK


def test_releasing_what_is_not_held(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as holder, WireClient(front_end.socket) as other:
        assert put(holder, 1) == OK
        place(holder, 1)
        other.send("ReleaseRequest", object_id=oid(1))
        assert other.is_cut_off()
        os.close(holder.take_descriptor())
        assert holder.ask("Delete", count=1, object_ids=[oid(1)])["errors"] == ["ObjectInUse"]  # held still
    assert "which it does not hold" in front_end.log()


def test_releasing_what_is_not_sealed(new_front_end: Any, wait_until: Callable[..., None]) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as good:
        assert create(client, 1, 12 * MIB)["error"] == OK
        os.close(client.take_descriptor())
        client.send("ReleaseRequest", object_id=oid(1))
        assert client.is_cut_off()
        wait_until(lambda: "unsealed: 0" in good.ask("DebugString")["text"], "the object to be gone")
        assert create(good, 1, 12 * MIB)["error"] == OK


@pytest.mark.parametrize("together", [True, False], ids=["at once", "later"])
def test_a_subscription_without_its_socket(new_front_end: Any, together: bool) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client, WireClient(front_end.socket) as good:
        request = HEADER.pack(0, SUBSCRIBE, 0)
        pieces = [request + b"\0"] if together else [request, b"\0"]
        for piece in pieces:
            client.socket.sendall(piece)
            assert not has(good, 1)  # so that the pieces mostly arrive one by one
        assert client.is_cut_off()
    assert "descriptor of a socket" in front_end.log()


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "short ID": ("CreateRequest", {"object_id": "short", "data_size": 1}),
    "long ID": ("CreateRequest", {"object_id": "x" * 21, "data_size": 1}),
    "no ID": ("SealRequest", {"digest": "digest--"}),
    "short ID in a get": ("GetRequest", {"object_ids": [oid(1), ""], "timeout_ms": 0}),
    "short ID in a delete": ("DeleteRequest", {"count": 1, "object_ids": ["x" * 19]}),
    "batch without data": ("CreateAndSealBatchRequest", {"object_ids": [oid(1)]}),
    "batch with fewer data than IDs": (
        "CreateAndSealBatchRequest",
        {"object_ids": [oid(1), oid(2)], "data": ["x"], "metadata": ["", ""], "digests": ["", ""]},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_fields_cut_off_their_client(new_front_end: Any, name: str) -> None:
    front_end = new_front_end(16 * MIB)
    table, fields = BAD[name]
    with WireClient(front_end.socket) as good, WireClient(front_end.socket) as bad:
        bad.send(table, **fields)
        assert bad.is_cut_off()
        assert not has(good, 1)
    assert "is cut off" in front_end.log()


def test_a_descriptor_that_is_never_fetched(new_front_end: Any, wait_until: Callable[..., None]) -> None:
    front_end = new_front_end(16 * MIB)
    process = psutil.Process(front_end.process.pid)
    with WireClient(front_end.socket) as good:
        assert put(good, 1) == OK
        before = process.num_fds()
        for number in range(2, 22):
            with WireClient(front_end.socket) as careless:
                assert create(careless, number, MIB)["error"] == OK  # 20 MiB in all
        with WireClient(front_end.socket) as careless:
            # The byte that carries the descriptor is read without it, and the connection goes on.
            assert create(careless, 30, 4)["error"] == OK
            assert careless.socket.recv(1) == b"\0"
            assert careless.ask("Seal", object_id=oid(30), digest="digest--")["error"] == OK
        wait_until(lambda: process.num_fds() <= before, "the connections to be closed")
        wait_until(lambda: "unsealed: 0" in good.ask("DebugString")["text"], "what they created to be gone")
        assert has(good, 30)


def test_messages_sent_together_are_answered_in_order(new_front_end: Any) -> None:
    front_end = new_front_end(16 * MIB)
    with WireClient(front_end.socket) as client:
        seal = {"evict_if_full": True, "data": "x", "metadata": "", "digest": "digest--"}
        client.socket.sendall(
            frame("CreateAndSealRequest", object_id=oid(1), **seal)
            + frame("ContainsRequest", object_id=oid(1))
            + frame("ListRequest")
            + frame("EvictRequest", num_bytes=1)
        )
        received = [client.receive_raw() for _ in range(4)]
        names = [name for name, _ in received]
        assert names == ["CreateAndSealReply", "ContainsReply", "ListReply", "EvictReply"]
        sealed, contains, listed, evicted = decode(received)
        assert (sealed["error"], contains["has_object"], evicted["num_bytes"]) == (OK, True, 1)
        assert [each["object_id"] for each in listed["objects"]] == [oid(1)]
