"""Codecs of collections; see :mod:`entrepot._collections.metadata` for what they write."""

from __future__ import annotations

from typing import Any

from entrepot._collections.collection import Collection, resolve_reference
from entrepot._collections.metadata import (
    COLLECTION_CODEC,
    MEMBER_CODEC,
    REFERENCE_CODEC,
    SELECTION_VERSION,
    VERSION,
    checked_params,
    parse_contents,
    parse_member_meta,
    text_param,
)
from entrepot._collections.positions import check_packed, pack
from entrepot.codec import Codec, Decoder, Encoder, Node
from entrepot.errors import CorruptData, InvalidArgument, UnsupportedType
from entrepot.ids import ID_BYTES, ObjectID


class MemberCodec(Codec):
    """A collection's member: decodes to its value; the metadata is for the collection only."""

    name = MEMBER_CODEC
    version = VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        raise UnsupportedType("put members with the builder that Store.collection returns")

    def decode(self, node: Node, decoder: Decoder) -> Any:
        parse_member_meta(node)
        return decoder.decode(node.children[0])


class CollectionCodec(Codec):
    """A sealed collection."""

    name = COLLECTION_CODEC
    version = VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        raise UnsupportedType("seal collections with the builder that Store.collection returns")

    def decode(self, node: Node, decoder: Decoder) -> Any:
        return Collection(_store_of(decoder), parse_contents(node, decoder), copy=decoder.copy)


class ReferenceCodec(Codec):
    """A collection put as a value: decodes to that collection, not to a copy of it."""

    name = REFERENCE_CODEC
    in_tree = True  # whoever looks for what depends on lost objects reads no documents
    version = SELECTION_VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        if not isinstance(value, Collection):
            raise UnsupportedType(f"the collection codec expects an entrepot.Collection, not a {type(value)}")
        params: dict[str, Any] = {"id": value.id.binary, "name": value.name, "digest": value.digest}
        if value.positions != range(value.count_sealed):
            params["positions"] = pack(value.positions)
        # Only a selection needs the newer version: programs that know nothing but slices read everything else.
        return Node(self.name, VERSION if isinstance(value.positions, range) else SELECTION_VERSION, params)

    def decode(self, node: Node, decoder: Decoder) -> Any:
        params = checked_params(node, REFERENCE_CODEC)
        raw, digest, positions = params.get("id"), params.get("digest"), params.get("positions")
        if not isinstance(raw, bytes) or len(raw) != ID_BYTES or not isinstance(digest, bytes):
            raise CorruptData("a reference to a collection has no ID or no digest")
        check_packed(positions)
        return resolve_reference(
            _store_of(decoder), ObjectID(raw), text_param(params, "name"), digest, positions, copy=decoder.copy
        )


def _store_of(decoder: Decoder) -> Any:
    if decoder.store is None:
        raise InvalidArgument("a collection can only be read through a store: use Store.get")
    return decoder.store
