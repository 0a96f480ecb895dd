"""What lists and ``info`` say of an object: complete records, read from the beginning of its metadata."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import _core
from entrepot._collections.metadata import may_refer
from entrepot.codec import Node, codec_of, pack_tree, unpack_tree


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to the test's store."""
    with entrepot.connect(daemon.address) as connected:
        yield connected


def fields_of(info: entrepot.ObjectInfo) -> dict[str, Any]:
    """Each field, which must have a value."""
    return {each.name: getattr(info, each.name) for each in dataclasses.fields(info)}


def test_a_record_has_every_field_and_is_frozen(store: entrepot.Store) -> None:
    oid = store.put(np.ones(100_000), name="ones")
    (listed,) = store.list()
    info = store.info(oid)
    for each in (listed, info):
        assert entrepot.ObjectInfo(**fields_of(each)) == each
        with pytest.raises(dataclasses.FrozenInstanceError):
            each.nbytes = 0  # type: ignore[misc]
    assert (listed.type, listed.nbytes, listed.names) == ("numpy.ndarray", 800_000, ["ones"])
    assert (listed.own_bytes, listed.blobs, listed.parents) == (0, [], [])
    assert (info.own_bytes >= 800_000, len(info.blobs)) == (True, 1)
    assert listed.blobs is not listed.parents


def test_lists_of_two_records_share_no_list(store: entrepot.Store) -> None:
    store.put_many([b"a", b"b"])
    first, second = store.list()
    first.pinned_by.append({"pid": 1})
    assert second.pinned_by == []
    assert store.list()[0].pinned_by == []


def test_the_collector_is_on_again_after_a_list(store: entrepot.Store) -> None:
    store.put(b"x")
    assert gc.isenabled()
    store.list()
    assert gc.isenabled()
    with pytest.raises(entrepot.ObjectNotFound):
        store.list(session="there is none")
    assert gc.isenabled()
    gc.disable()
    try:
        store.list()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("inlined", [0, 1, 127, 128, 300, 70_000])
@pytest.mark.parametrize("codec", ["x", "python.data", "a" * 31, "a" * 32, "a" * 300, "é"])
def test_the_codec_is_read_from_the_first_bytes(codec: str, inlined: int) -> None:
    tree = pack_tree(Node(codec, 1, {"some": "parameter"}, [0], [Node("y", 1)]), inlined)
    assert unpack_tree(tree).codec == codec
    assert codec_of(tree) == (codec if codec.isascii() and len(codec) < 32 else None)


@pytest.mark.parametrize("tree", [b"", b"\x92", b"\x92\x01", b"\x92\x01\x95", b"\x93\x02\xcd", b"\x92\x01\x95\xa5abc"])
def test_what_is_cut_off_has_no_codec(tree: bytes) -> None:
    assert codec_of(tree) is None


def test_any_cut_and_any_changed_byte_is_a_codec_or_none() -> None:
    whole = pack_tree(Node("python.data", 1, [0, b"value"]), 5)
    for length in range(len(whole)):
        assert codec_of(whole[:length]) in (None, "python.data")
    for position in range(len(whole)):
        for value in range(256):
            codec = codec_of(whole[:position] + bytes((value,)) + whole[position + 1 :])
            assert codec is None or codec.isascii()


def test_values_with_collections_may_refer_to_others(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    builder.put(np.ones(10), index=0)
    parts = builder.seal(1)
    referring = [parts.id, store.put({"all": parts}), store.put([parts] * 5000)]
    others = [store.put({"plain": 1}), store.put(np.ones(10)), store.put(b"bytes")]
    raw: _core.Client = store._raw()  # pyright: ignore[reportPrivateUsage]
    assert all(may_refer(*raw.tree(oid.binary)[:2]) for oid in referring)
    assert not any(may_refer(*raw.tree(oid.binary)[:2]) for oid in others)


def test_new_frozen_says_what_it_wants() -> None:
    with pytest.raises(TypeError, match="takes a class, and each of its fields by name"):
        _core.new_frozen(5)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        _core.new_frozen(entrepot.ObjectInfo, no_such_field=1)
