"""Short byte strings take a fast path, with the same results as the general path."""

from __future__ import annotations

import entrepot
import pytest
from entrepot._codecs import inline_bytes
from entrepot._codecs.builtin import BytesCodec
from entrepot.codec import Encoder, default_registry, encode_value, unpack_tree

LENGTHS = [0, 1, 31, 32, 255, 256, 257, 1024, inline_bytes.MAX_BYTES - 1, inline_bytes.MAX_BYTES]


def test_the_path_writes_under_the_codec_s_own_name() -> None:
    assert (BytesCodec.name, BytesCodec.version) == (inline_bytes.CODEC, inline_bytes.VERSION)
    assert Encoder(default_registry()).encode(b"x").codec == inline_bytes.CODEC


@pytest.mark.parametrize("length", LENGTHS)
def test_both_paths_write_the_same_tree(length: int) -> None:
    value = bytes(i % 251 for i in range(length))
    tree, buffers, _ = encode_value(value)
    assert inline_bytes.tree_of(value) == tree
    assert not buffers
    assert unpack_tree(tree).params == value


@pytest.mark.parametrize("length", [*LENGTHS, inline_bytes.MAX_BYTES + 1, 20_000, 100_000])
def test_bytes_of_any_length_are_returned(store: entrepot.Store, length: int) -> None:
    value = bytes(i % 251 for i in range(length))
    oid = store.put(value)
    for copy in ("never", "on_write", "always"):
        loaded = store.get(oid, copy=copy)
        assert loaded == value
        assert type(loaded) is bytes
    assert store.get_many([oid, oid]) == [value, value]
    assert store._client.raw.pins == 0


def test_other_values_never_pass_for_bytes(store: entrepot.Store) -> None:
    tree = inline_bytes.tree_of(b"inner")
    values = [bytearray(b"abc"), tree, [b"abc"], {"python.bytes": b"abc"}, "abc", memoryview(b"abc"), None, b""]
    ids = store.put_many(values)
    for oid, value in zip(ids, values, strict=True):
        loaded = store.get(oid)
        assert loaded == value
        assert type(loaded) is type(value)
    for loaded, value in zip(store.get_many(ids), values, strict=True):
        assert loaded == value
        assert type(loaded) is type(value)


def test_arguments_are_checked_on_the_short_path_too(store: entrepot.Store) -> None:
    oid = store.put(b"x")
    with pytest.raises(entrepot.InvalidArgument, match="copy must be one of"):
        store.get(oid, copy="sometimes")  # type: ignore[arg-type]
    with pytest.raises(entrepot.InvalidArgument, match="timeout"):
        store.get(oid, timeout=-1)
    with pytest.raises(entrepot.InvalidArgument, match="timeout"):
        store.get(oid, timeout="1")  # type: ignore[arg-type]


def test_what_was_deleted_or_closed_is_not_found(store: entrepot.Store) -> None:
    other = store.session("other")
    oid = store.put(b"x")
    assert other.get(oid) == b"x"
    store.delete(oid)
    with pytest.raises(entrepot.ObjectNotFound):
        other.get(oid)
    kept = store.put(b"y")
    other.close()
    with pytest.raises(entrepot.StoreUnavailable, match="closed"):
        other.get(kept)
    assert store.get(kept) == b"y"


def test_a_malformed_id_is_no_small_object(store: entrepot.Store) -> None:
    raw = store._client.raw
    assert raw.get_small(b"short") is None
    with pytest.raises(TypeError):
        raw.get_small("text")  # type: ignore[arg-type]
