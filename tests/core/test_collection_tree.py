"""Trees of collections: round trips, and rejection of damaged ones."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from entrepot._codecs.encoding import codec_registry
from entrepot._collections.metadata import (
    COLLECTION_CODEC,
    KINDS,
    MEMBER_CODEC,
    Contents,
    MemberMeta,
    ValueTraits,
    contents_node,
    member_node,
    pack_index,
    parse_contents,
    parse_member_meta,
    summarize,
)
from entrepot._tree import is_tree_of
from entrepot.codec import Decoder, Encoder, Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, UnsupportedType
from entrepot.ids import ObjectID
from hypothesis import given
from hypothesis import strategies as st

numbers = st.integers(0, 2**63 - 1)
ids = st.binary(min_size=20, max_size=20).map(ObjectID)
value_traits = st.builds(
    ValueTraits,
    st.text(max_size=20),
    st.sampled_from(KINDS),
    st.text(max_size=20),
    st.none() | numbers,
    st.none() | st.lists(numbers, max_size=4).map(tuple),
    st.none() | st.binary(max_size=30),
)
member_metas = st.builds(MemberMeta, st.text(max_size=20), numbers, st.text(max_size=20), value_traits)


@st.composite
def collections(draw: Any) -> tuple[Contents, list[ObjectID], list[int], list[int]]:
    members = draw(st.lists(st.tuples(ids, numbers, numbers), max_size=300))
    common = draw(value_traits)
    columns = [list(column) for column in zip(*members, strict=True)] or [[], [], []]
    index = pack_index(columns[0], columns[1], columns[2] if common.rows is not None else None)
    name, scope, session = draw(st.tuples(st.text(), st.text(), st.text()))
    return (
        Contents(name, scope, session, len(members), draw(numbers), common, index),
        columns[0],
        columns[1],
        columns[2],
    )


def _serialize(contents: Contents) -> tuple[bytes, list[Any]]:
    encoder = Encoder(codec_registry())
    return pack_tree(contents_node(contents, encoder)), encoder.buffers


def _decoder(buffers: list[Any]) -> Decoder:
    return Decoder(codec_registry(), lambda index: memoryview(buffers[index]), len(buffers))


@given(member_metas)
def test_member_metadata_round_trips(member_meta: MemberMeta) -> None:
    node = member_node(member_meta, Node("python.data", 1, [0, b"\xc0"]))
    for inlined in (0, 1, 200, 1000):
        tree = pack_tree(node, inlined)
        assert is_tree_of(tree, MEMBER_CODEC)
        assert not is_tree_of(tree, COLLECTION_CODEC)
    assert parse_member_meta(unpack_tree(tree)) == member_meta
    kind, collection, member = summarize(tree)
    assert (kind, collection, member) == (
        "python.data",
        None,
        {"name": member_meta.collection, "index": member_meta.index},
    )


@given(collections())
def test_a_collection_round_trips(collection: tuple[Contents, list[ObjectID], list[int], list[int]]) -> None:
    contents, members, sizes, rows = collection
    tree, buffers = _serialize(contents)
    assert is_tree_of(tree, COLLECTION_CODEC)
    decoded = parse_contents(unpack_tree(tree), _decoder(buffers))
    assert decoded.digest() == contents.digest()
    assert [decoded.id_of(position) for position in range(decoded.count)] == members
    assert [decoded.bytes_of(position) for position in range(decoded.count)] == sizes
    if decoded.traits.rows is not None:
        assert [decoded.rows_of(position) for position in range(decoded.count)] == rows
    assert (decoded.name, decoded.scope, decoded.session, decoded.traits) == (
        contents.name,
        contents.scope,
        contents.session,
        contents.traits,
    )


@given(collections(), collections())
def test_other_contents_have_another_digest(first: tuple[Contents, ...], second: tuple[Contents, ...]) -> None:
    same = _serialize(first[0]) == _serialize(second[0])
    assert (first[0].digest() == second[0].digest()) is same


def _values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=50)
    return st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@given(
    st.sampled_from([COLLECTION_CODEC, MEMBER_CODEC]), st.sampled_from(["count", "nbytes", "traits", "index", "name"]),
    _values(), st.sampled_from(["kind", "rows", "row_shape", "schema", "type", "layout", None]),
)  # fmt: skip
def test_a_damaged_field_is_refused_or_read(codec: str, field: str, value: Any, inner: str | None) -> None:
    contents = Contents(
        "n", "s", "r", 2, 7, ValueTraits("t", "value", ""), pack_index([ObjectID.random()] * 2, [3, 4], None)
    )
    if codec == COLLECTION_CODEC:
        node = contents_node(contents, Encoder(codec_registry()))
    else:
        node = member_node(MemberMeta("n", 0, "", contents.traits), Node("python.data", 1, [0, b"\xc0"]))
    if inner is None:
        node.params[field] = value
    else:
        node.params["traits"][inner] = value
    try:
        damaged = unpack_tree(
            msgpack.packb(
                [
                    1,
                    [
                        node.codec,
                        1,
                        node.params,
                        [],
                        [[child.codec, 1, child.params, [], []] for child in node.children],
                    ],
                ]
            )
        )
        if codec == MEMBER_CODEC:
            parse_member_meta(damaged)
        else:
            decoded = parse_contents(damaged, _decoder([]))
            assert decoded.count * 28 <= len(decoded.index)
    except CorruptData:
        pass


@given(st.binary(max_size=60))
def test_any_node_that_is_not_one_is_refused(noise: bytes) -> None:
    for check in (
        parse_member_meta,
        lambda node: parse_contents(node, _decoder([])),
        lambda node: summarize(pack_tree(node)),
    ):
        for node in (Node(COLLECTION_CODEC, 1, noise), Node(MEMBER_CODEC, 1, [noise])):
            with pytest.raises(CorruptData):
                check(node)


def test_members_and_collections_are_made_by_the_builder_only() -> None:
    encoder = Encoder(codec_registry())
    for name in (COLLECTION_CODEC, MEMBER_CODEC, "entrepot.collection_reference"):
        with pytest.raises(UnsupportedType):
            codec_registry().by_name(name).encode(1, encoder)


def test_a_collection_is_read_through_a_store() -> None:
    contents = Contents("n", "s", "r", 0, 0, ValueTraits("", "value"), b"")
    tree, buffers = _serialize(contents)
    with pytest.raises(InvalidArgument, match="through a store"):
        _decoder(buffers).decode(unpack_tree(tree))


@pytest.mark.parametrize(
    "params",
    [None, {}, {"id": b"x", "digest": b""}, {"id": bytes(20), "digest": b"", "positions": [1, 2]},
     {"id": bytes(20), "digest": b"", "positions": ["a", 1, 1]}, {"id": bytes(20), "digest": b""}],
)  # fmt: skip
def test_a_damaged_reference_is_refused(params: Any) -> None:
    decoder = Decoder(codec_registry(), lambda index: b"", 0, store=object())
    with pytest.raises(EntrepotError) as raised:
        decoder.decode(Node("entrepot.collection_reference", 1, params))
    assert isinstance(raised.value, CorruptData)
