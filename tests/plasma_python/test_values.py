"""``put`` and ``get``: Python values."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot import plasma
from entrepot._codecs import plasma_values


class Unpicklable:
    """Says so."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not this one")


@pytest.mark.parametrize(
    "value",
    [None, "text", 1.5, b"", b"x" * 100_000, ["a", 1, {"b": (2, 3)}], bytearray(5), {1, 2}, 1 << 100],
    ids=["none", "text", "float", "empty", "bytes", "nested", "bytearray", "set", "integer"],
)
def test_a_value_comes_back(client: plasma.PlasmaClient, value: object) -> None:
    oid = client.put(value)
    assert client.get(oid) == value
    assert type(client.get(oid)) is type(value)
    assert client.get([oid, oid]) == [value, value]
    assert client.get_metadata([oid])[0].to_pybytes() == b""


@pytest.mark.parametrize("count", [3, 5000, 1_000_000])
def test_arrays_are_read_in_place_and_read_only(client: plasma.PlasmaClient, count: int) -> None:
    array = np.arange(count)
    oid = client.put({"array": array, "transposed": array.reshape(1, -1).T})
    value = client.get(oid)
    np.testing.assert_array_equal(value["array"], array)
    np.testing.assert_array_equal(value["transposed"], array.reshape(-1, 1))
    assert value["array"].ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        value["array"][0] = 1
    assert np.shares_memory(client.get(oid)["array"], value["array"])  # both are views of the store's memory


def test_arrays_that_are_not_contiguous_come_back(client: plasma.PlasmaClient) -> None:
    array = np.arange(100_000)[::3]
    np.testing.assert_array_equal(client.get(client.put(array)), array)


def test_tables_and_frames_come_back(client: plasma.PlasmaClient) -> None:
    table = pa.table({"x": list(range(10_000)), "y": ["é"] * 10_000})
    assert client.get(client.put(table)).equals(table)
    batch = table.to_batches()[0]
    assert client.get(client.put([batch, pa.array([1, None])])) == [batch, pa.array([1, None])]
    frame = table.to_pandas()
    pd.testing.assert_frame_equal(client.get(client.put(frame)), frame)


def test_tensors_come_back(client: plasma.PlasmaClient) -> None:
    array = np.arange(12.0).reshape(3, 4)
    named, plain = pa.Tensor.from_numpy(array, ["rows", "columns"]), pa.Tensor.from_numpy(array)
    value = client.get(client.put([named, plain]))
    assert value == [named, plain]
    assert value[0].dim_names == ["rows", "columns"]
    assert pa.Tensor not in copyreg.dispatch_table  # the process's own pickles are left alone


def test_a_tensor_beside_an_array_that_is_not_contiguous_comes_back(client: plasma.PlasmaClient) -> None:
    strided = np.arange(20)[::2]
    tensor, array = client.get(client.put((pa.Tensor.from_numpy(np.eye(2)), strided)))
    assert tensor.shape == (2, 2)
    np.testing.assert_array_equal(array, strided)


def test_a_value_outlives_its_object_and_client(client: plasma.PlasmaClient, socket_name: str) -> None:
    other = plasma.connect(socket_name)
    oid = client.put(np.arange(100_000))
    value = other.get(oid)
    client.delete([oid])
    assert not other.contains(oid)
    other.disconnect()
    del other
    assert value.sum() == sum(range(100_000))


def test_what_cannot_be_pickled_is_refused_and_nothing_is_stored(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    with pytest.raises(plasma.PlasmaSerializationError, match=r"test_values\.Unpicklable cannot be put.*not this one"):
        client.put(Unpicklable(), oid)
    assert not client.contains(oid)
    with pytest.raises(pa.ArrowSerializationError):
        client.put(lambda: None)


def test_pyarrows_serialization_is_named_in_the_error(client: plasma.PlasmaClient) -> None:
    # The beginning of what pyarrow 11 stores for [1, 2]: four counts, and the length of an Arrow message.
    oid = client.put_raw_buffer(bytes(16) + b"\xff\xff\xff\xff\x80\x01\0\0" + bytes(400))
    with pytest.raises(plasma.PlasmaSerializationError, match=r"424 bytes.*pyarrow\.deserialize.*Arrow's IPC format"):
        client.get(oid)
    with pytest.raises(plasma.PlasmaSerializationError, match=r"data, 0 bytes.*get_buffers"):
        client.get(client.put_raw_buffer(b""))
    with pytest.raises(plasma.PlasmaSerializationError, match="serialization_context must be None"):
        client.put(1, None, serialization_context=object())  # type: ignore[arg-type]
    with pytest.raises(plasma.PlasmaSerializationError, match="serialization_context must be None"):
        client.get(oid, serialization_context=object())  # type: ignore[arg-type]


def _damaged(data: bytes) -> list[bytes]:
    header = plasma_values.MAGIC
    return [
        data[:30],  # the pickle is cut off
        header + b"\xff\xff\xff\xff" + data[12:],  # more buffers than fit
        data[:24] + b"\xff" * 8 + data[32:],  # a buffer beyond the end
        data[:16] + b"\xff" * 8 + data[24:],  # a pickle beyond the end
        data[:40] + b"\0" * 40 + data[80:],  # no pickle
    ]


@pytest.mark.parametrize("which", range(5))
def test_damaged_values_are_reported(client: plasma.PlasmaClient, which: int) -> None:
    data = client.get_buffers([client.put(np.arange(100))])[0].to_pybytes()
    assert len(data) > 900
    oid = client.put_raw_buffer(_damaged(data)[which])
    with pytest.raises(entrepot.CorruptData):
        client.get(oid)


def test_a_class_that_cannot_be_imported_is_named(client: plasma.PlasmaClient) -> None:
    stream = b"\x80\x05\x8c\x0bno_such_pkg\x8c\x05Thing\x93."
    data = plasma_values.MAGIC + bytes(8) + len(stream).to_bytes(8, "little") + stream
    with pytest.raises(plasma.PlasmaSerializationError, match="no_such_pkg"):
        client.get(client.put_raw_buffer(data))


def test_without_pickle_values_are_refused_both_ways(socket_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting = plasma.connect(socket_name)
    oid = trusting.put([1])
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    wary = plasma.connect(socket_name)
    for attempt in (lambda: wary.put(1), lambda: wary.get(oid), lambda: wary.get([oid])):
        with pytest.raises(plasma.PlasmaSerializationError, match="ENTREPOT_ALLOW_PICKLE"):
            attempt()
    assert wary.get_buffers([wary.put_raw_buffer(b"raw")])[0].to_pybytes() == b"raw"
    trusting.disconnect()
    wary.disconnect()


def test_an_id_of_the_users_own(client: plasma.PlasmaClient) -> None:
    oid = plasma.ObjectID.from_random()
    assert client.put([1], oid) == oid
    for value in ([1], [2], np.zeros(10_000)):
        with pytest.raises(plasma.PlasmaObjectExists):
            client.put(value, oid)
    assert client.get(oid) == [1]
    big = plasma.ObjectID.from_random()
    client.put(np.zeros(10_000), big)
    with pytest.raises(plasma.PlasmaObjectExists):
        client.put(np.zeros(10_000), big)


@pytest.mark.parametrize("value", ["x", b"x" * 20, None, 5])
def test_what_is_no_object_id_is_refused(client: plasma.PlasmaClient, value: Any) -> None:
    calls: list[Callable[[Any], object]] = [client.get, client.contains, client.seal, client.hash]
    calls += [lambda v: client.create(v, 1), lambda v: client.get([v]), lambda v: client.get_buffers([v])]
    calls += [lambda v: client.delete([v])]
    for call in calls:
        if call == client.get and isinstance(value, (str, bytes)):
            continue  # a sequence of what are no IDs, too
        with pytest.raises(TypeError, match=r"plasma\.ObjectID"):
            call(value)
