"""``create``, ``seal`` and buffers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from entrepot import plasma

SIZES = [0, 1, 1000, 16 << 10, (16 << 10) + 1, 3 << 20]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("metadata", [b"", b"meta", b"m" * 20_000], ids=["no-metadata", "short", "long"])
def test_what_is_written_in_place_is_read(
    client: plasma.PlasmaClient, socket_name: str, size: int, metadata: bytes
) -> None:
    other = plasma.connect(socket_name)
    oid, content = plasma.ObjectID.from_random(), np.arange(size, dtype="uint8")
    buffer = client.create(oid, size, metadata)
    assert isinstance(buffer, plasma.PlasmaBuffer)
    np.frombuffer(buffer, dtype="uint8")[:] = content
    assert not other.contains(oid)
    assert other.get_buffers([oid], timeout_ms=0) == [None]
    client.seal(oid)
    for reader in (client, other):
        [(read_metadata, data)] = reader.get_buffers([oid], with_meta=True)
        assert read_metadata == metadata
        assert data.to_pybytes() == content.tobytes() == buffer.to_pybytes()
        assert not data.is_mutable
        assert reader.get_metadata([oid])[0].to_pybytes() == metadata
    other.disconnect()


def test_seal_copies_nothing(client: plasma.PlasmaClient, store: Any) -> None:
    before = store.status()["payload_bytes"]
    oid, size = plasma.ObjectID.from_random(), 64 << 20
    buffer = client.create(oid, size)
    np.frombuffer(buffer, dtype="uint8")[:] = 7
    leased = store.status()["unsealed_bytes"]
    client.seal(oid)
    assert leased >= size
    assert store.status()["payload_bytes"] - before == size
    assert store.info(oid.binary()).blobs[0]["length"] == size


def test_the_buffer_of_create_holds_the_object(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    buffer = client.create(oid, 1 << 20)
    array = np.frombuffer(buffer, dtype="uint8")
    array[:] = 5
    client.seal(oid)
    del buffer
    gc.collect()
    client.delete([oid])
    for _ in range(20):  # memory that nobody holds would be written to by these
        client.put(np.full(1 << 20, 9, dtype="uint8"))
    assert (array == 5).all()


def test_an_id_is_created_and_sealed_once(client: plasma.PlasmaClient, socket_name: str) -> None:
    other, oid = plasma.connect(socket_name), plasma.ObjectID.from_random()
    client.create(oid, 10, b"x")
    for attempt in (client, other):
        with pytest.raises(plasma.PlasmaObjectExists):
            attempt.create(oid, 10)
        with pytest.raises(plasma.PlasmaObjectExists):
            attempt.put(1, oid)
        with pytest.raises(plasma.PlasmaObjectExists):
            attempt.put(np.zeros(10_000), oid)
    with pytest.raises(plasma.PlasmaObjectNotFound, match="is not creating"):
        other.seal(oid)
    client.seal(oid)
    for attempt in (client, other):
        with pytest.raises(plasma.PlasmaObjectNotFound):
            attempt.seal(oid)
        with pytest.raises(plasma.PlasmaObjectExists):
            attempt.create(oid, 10)
    client.delete([oid])
    client.create(oid, 20)
    client.seal(oid)
    assert client.get_buffers([oid])[0].size == 20
    other.disconnect()


def test_of_two_processes_the_second_to_seal_is_refused(client: plasma.PlasmaClient, output: Any) -> None:
    oid = plasma.ObjectID.from_random()
    np.frombuffer(client.create(oid, 100_000), dtype="uint8")[:] = 1
    assert output("client.create(ids[0], 3); client.seal(ids[0]); print('sealed')", oid) == "sealed\n"
    with pytest.raises(plasma.PlasmaObjectExists):
        client.seal(oid)
    assert client.get_buffers([oid])[0].size == 3
    client.delete([oid])
    client.create(oid, 5)  # nothing of the first attempt is left
    client.seal(oid)


def test_what_is_not_sealed_is_given_up(socket_name: str, client: plasma.PlasmaClient, store: Any) -> None:
    other, kept = plasma.connect(socket_name), plasma.connect(socket_name)
    ids = [plasma.ObjectID.from_random() for _ in range(3)]
    other.create(ids[0], 1 << 20)
    kept.create(ids[1], 1 << 20)
    client.create(ids[2], 1 << 20)
    assert set(client.list()) == set(ids)
    other.disconnect()
    del kept
    gc.collect()
    assert set(client.list()) == {ids[2]}
    for oid in ids[:2]:
        client.create(oid, 1)
        client.seal(oid)


def test_bytes_at_once(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    client.create_and_seal(oid, b"data", b"metadata")
    assert client.get_buffers([oid], with_meta=True)[0][0] == b"metadata"
    for data in (b"data", b"other"):
        with pytest.raises(plasma.PlasmaObjectExists):
            client.create_and_seal(oid, data, b"metadata")
    array = np.arange(1_000_000).reshape(1000, 1000)
    values: list[Any] = [b"raw", bytearray(b"raw"), memoryview(b"raw"), array, pa.py_buffer(b"raw" * 10_000)]
    for value in values:
        raw = client.put_raw_buffer(value, metadata=b"RAW")
        [(metadata, data)] = client.get_buffers([raw], with_meta=True)
        assert (metadata, data.to_pybytes()) == (b"RAW", memoryview(value).tobytes())
    with pytest.raises(BufferError):
        client.put_raw_buffer(array[:, ::2])


def test_stored_bytes_are_put_again_without_a_copy(client: plasma.PlasmaClient, store: Any) -> None:
    [data] = client.get_buffers([client.put_raw_buffer(bytes(4 << 20))])
    again = client.put_raw_buffer(data)
    assert store.info(again.binary()).own_bytes == 0


def test_arguments_of_create_are_checked(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    with pytest.raises(ValueError, match="0 or more bytes, but got -1"):
        client.create(oid, -1)
    with pytest.raises(TypeError, match="metadata must be bytes"):
        client.create(oid, 1, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integer"):
        client.create(oid, 1.5)  # type: ignore[arg-type]
    assert client.list() == {}


def test_a_store_that_is_full_says_so(client: plasma.PlasmaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    oid = plasma.ObjectID.from_random()
    with pytest.raises(plasma.PlasmaStoreFull, match="larger than the whole store"):
        client.create(oid, 300 << 20)
    held = client.create(oid, 200 << 20)  # this store has no disk
    monkeypatch.setattr("entrepot.plasma.writer.FULL_WAIT_SECONDS", 0.2)
    for attempt in (
        lambda: client.create(plasma.ObjectID.from_random(), 100 << 20),
        lambda: client.put(np.zeros(100 << 17)),
        lambda: client.put_raw_buffer(bytes(100 << 20)),
    ):
        with pytest.raises(plasma.PlasmaStoreFull, match="no room"):
            attempt()
    del held
    client.seal(oid)
    client.delete([oid])
    client.put_raw_buffer(bytes(100 << 20))


def test_more_than_memory_goes_to_disk(new_daemon: Any, socket_folder: Any) -> None:
    daemon = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"), "--spill-quota", "512MiB")
    client = plasma.connect(daemon.address)
    ids = [client.put_raw_buffer(bytes([index]) * (8 << 20)) for index in range(16)]
    assert all(client.contains(oid) for oid in ids)
    for index, oid in enumerate(ids):
        [data] = client.get_buffers([oid])
        assert (data.size, data[0], data[-1]) == (8 << 20, index, index)
    assert {entry["data_size"] for entry in client.list().values()} == {8 << 20}
    client.disconnect()


def test_record_batches_and_tensors_through_arrows_writers(client: plasma.PlasmaClient) -> None:
    batch = pa.record_batch({"x": list(range(1000))})
    counter = pa.MockOutputStream()
    with pa.RecordBatchStreamWriter(counter, batch.schema) as writer:
        writer.write_batch(batch)
    oid = plasma.ObjectID.from_random()
    with pa.RecordBatchStreamWriter(
        pa.FixedSizeBufferWriter(client.create(oid, counter.size())), batch.schema
    ) as writer:
        writer.write_batch(batch)
    client.seal(oid)
    [data] = client.get_buffers([oid])
    assert pa.RecordBatchStreamReader(pa.BufferReader(data)).read_next_batch().equals(batch)

    tensor = pa.Tensor.from_numpy(np.arange(10.0))
    oid = plasma.ObjectID.from_random()
    stream = pa.FixedSizeBufferWriter(client.create(oid, pa.ipc.get_tensor_size(tensor)))
    pa.ipc.write_tensor(tensor, stream)
    client.seal(oid)
    assert pa.ipc.read_tensor(pa.BufferReader(client.get_buffers([oid])[0])).equals(tensor)
