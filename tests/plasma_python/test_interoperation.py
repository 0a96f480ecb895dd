"""Objects are shared with Entrepot's own interface, in both directions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import plasma
from entrepot._codecs.plasma_objects import TREE


def test_the_tree_is_the_documented_one(client: plasma.PlasmaClient, store: entrepot.Store) -> None:
    assert TREE == b"\x92\x01\x95\xadplasma.Object\x01\x81\xa6source\xa6plasma\x92\x00\x01\x90"
    created = plasma.ObjectID.from_random()
    client.create(created, 100_000, b"m")
    client.seal(created)
    ids = [client.put(1), client.put(np.zeros(10_000)), client.put_raw_buffer(b""), created]
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    assert {raw.tree(oid.binary())[0] for oid in ids} == {TREE}
    assert raw.buffer_lengths(created.binary())[1] == [100_000, 1]
    assert raw.buffer_lengths(ids[2].binary())[1] == [0, 0]


def test_a_plasma_object_is_data_and_metadata_for_others(client: plasma.PlasmaClient, store: entrepot.Store) -> None:
    oid = client.put_raw_buffer(b"d" * 100_000, metadata=b"meta")
    value = store.get(oid.binary())
    assert isinstance(value, plasma.PlasmaObject)
    assert (bytes(value.data), bytes(value.metadata), value.nbytes) == (b"d" * 100_000, b"meta", 100_004)
    assert value.data.readonly
    assert bytes(value) == b"d" * 100_000
    assert "100000 bytes, metadata of 4" in repr(value)
    again = store.put(value)
    assert store.info(again).own_bytes <= 64  # the data is shared
    assert client.get_buffers([plasma.ObjectID(again.binary)], with_meta=True)[0][0] == b"meta"


def test_a_put_value_is_unpickled_for_others_as_they_allow(client: plasma.PlasmaClient, store: entrepot.Store) -> None:
    array = np.arange(10_000)
    oid = client.put({"array": array, "tuple": (1, 2)})
    value = store.get(oid.binary()).value()
    np.testing.assert_array_equal(value["array"], array)
    assert not value["array"].flags.writeable
    with entrepot.connect(store.address, pickled_classes=lambda name: False) as strict:
        assert strict.get(oid.binary()).value()["tuple"] == (1, 2)
        other = client.put(subprocess.PIPE.__class__)
        client.put(subprocess.Popen, refused := plasma.ObjectID.from_random())
        assert strict.get(other.binary()).value() is int
        with pytest.raises(entrepot.UnsupportedType, match=r"subprocess\.Popen"):
            strict.get(refused.binary()).value()
    with entrepot.connect(store.address, allow_pickle=False) as stricter:
        assert stricter.get(oid.binary()).data.nbytes > array.nbytes
        with pytest.raises(entrepot.UnsupportedType, match="ENTREPOT_ALLOW_PICKLE"):
            stricter.get(oid.binary()).value()
    with pytest.raises(entrepot.UnsupportedType, match="get_buffers"):
        store.get(client.put_raw_buffer(b"raw").binary()).value()


def test_entrepots_values_are_read_here(client: plasma.PlasmaClient, store: entrepot.Store) -> None:
    array = np.arange(100_000)
    ids = [plasma.ObjectID(store.put(value).binary) for value in (b"short", b"long" * 10_000, bytearray(b"x"))]
    with store.create(1 << 20, metadata=b"m") as blob:
        blob.view[:] = b"v" * (1 << 20)
    ids.append(plasma.ObjectID(blob.id.binary))
    parts = [(meta, data.to_pybytes()) for meta, data in client.get_buffers(ids, with_meta=True)]
    assert parts == [(b"", b"short"), (b"", b"long" * 10_000), (b"", b"x"), (b"m", b"v" * (1 << 20))]
    table = plasma.ObjectID(store.put(array).binary)
    np.testing.assert_array_equal(client.get(table), array)
    assert client.get(ids[0]) == b"short"
    assert client.contains(table)
    with pytest.raises(plasma.PlasmaSerializationError, match=r"numpy\.ndarray.*read it with get"):
        client.get_buffers([table])
    assert client.list() == {}  # none of them is Plasma's


def test_the_command_line_says_that_it_comes_from_plasma(client: plasma.PlasmaClient, store: entrepot.Store) -> None:
    oid = client.put_raw_buffer(b"bytes of it", metadata=b"m")

    def run(*arguments: str) -> bytes:
        command = [sys.executable, "-m", "entrepot", *arguments, "--address", store.address]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout

    (listed,) = json.loads(run("ls", "--json"))
    assert (listed["type"], listed["id"], listed["nbytes"]) == ("plasma.Object", oid.binary().hex(), 12)
    assert json.loads(run("info", oid.binary().hex(), "--json"))["type"] == "plasma.Object"
    assert run("get", oid.binary().hex()) == b"bytes of it"


def test_saving_and_loading_keeps_it(client: plasma.PlasmaClient, store: entrepot.Store, socket_folder: Any) -> None:
    pytest.importorskip("entrepot_checkpoints")
    oid = client.put(np.arange(50_000))
    store.save(oid.binary(), f"{socket_folder}/saved")
    client.delete([oid])
    store.load(f"{socket_folder}/saved")
    np.testing.assert_array_equal(client.get(oid), np.arange(50_000))
