"""Trees of collections: of a member, of a sealed collection, and of a reference to one; encoding and validation.

Three codecs, described in ``docs/formats/collections.md``:

- ``entrepot.member``: a value and its *card*: which collection it belongs to, at which index, and the traits that all
  members must share. The producer writes the card because it has the value at hand; sealing reads only cards.
- ``entrepot.collection``: the collection itself: the members' IDs in order, their sizes and row counts.
- ``entrepot.collection_reference``: what a collection is encoded as when it is put as a value, or within one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from entrepot._codecs_inline import store_bytes, stored_bytes
from entrepot.codec import Codec, CodecSpec, Decoder, Encoder, Node, pack_tree
from entrepot.errors import CorruptData, InvalidArgument, UnsupportedType
from entrepot.ids import ID_BYTES, ObjectID

MEMBER_CODEC = "entrepot.member"
COLLECTION_CODEC = "entrepot.collection"
REFERENCE_CODEC = "entrepot.collection_reference"
VERSION = 1

TABLE, TENSOR, VALUE = "table", "tensor", "value"
KINDS = (TABLE, TENSOR, VALUE)
NUMBER_BYTES = 8
DIGEST_BYTES = 16
MOST_MEMBERS = 1 << 26  # an index of 2.4 GB; bounds what a damaged count could make us allocate
_MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a value that matter to its collection.

    Attributes:
        type: the value's type, for people and for comparison, such as ``"pyarrow.lib.Table"``.
        kind: ``"table"``, ``"tensor"`` or ``"value"``.
        layout: what all members share besides the type, as text: names and types of columns for tables, element type
            and number of axes for tensors; ``""`` for values.
        rows: number of rows of a table, or length of a tensor's first axis; None: it has no rows.
        row_shape: shape of a tensor's row; None: no rows.
        schema: a table's schema as an Arrow IPC message; None: not a table, or pyarrow is not installed.
    """

    type: str
    kind: str = VALUE
    layout: str = ""
    rows: int | None = None
    row_shape: tuple[int, ...] | None = None
    schema: bytes | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """Position and traits of a member.

    Attributes:
        collection: name of its collection.
        index: its position in it.
        writer: which producer appended it, and as which of its values; ``""`` for a member put by index.
        traits: properties of its value.
    """

    collection: str
    index: int
    writer: str
    traits: Traits


@dataclass(frozen=True, slots=True)
class Contents:
    """A sealed collection without its members' values.

    Attributes:
        name, scope, session: name of the collection, and where it was built.
        count: number of members.
        nbytes: their payload in bytes.
        traits: what they have in common; ``rows`` is their sum, ``row_shape`` is None if they differ in it.
        index: the IDs of all members (20 bytes each), then their sizes, then, if they have rows, their row counts;
            numbers are unsigned, 8 bytes, little-endian.
    """

    name: str
    scope: str
    session: str
    count: int
    nbytes: int
    traits: Traits
    index: Any

    def id_of(self, position: int) -> ObjectID:
        """Return the ID of a member."""
        return ObjectID(bytes(self.index[position * ID_BYTES : (position + 1) * ID_BYTES]))

    def bytes_of(self, position: int) -> int:
        """Return a member's payload in bytes."""
        return self._number(self.count * ID_BYTES, position)

    def rows_of(self, position: int) -> int:
        """Return a member's number of rows, if members have rows."""
        return self._number(self.count * (ID_BYTES + NUMBER_BYTES), position)

    def digest(self) -> bytes:
        """Return a digest that identifies these contents."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"entrepot-coll-v1")
        digest.update(pack_tree(Node(COLLECTION_CODEC, VERSION, _contents_params(self))))
        digest.update(self.index)
        return digest.digest()

    def _number(self, start: int, position: int) -> int:
        at = start + position * NUMBER_BYTES
        return int.from_bytes(self.index[at : at + NUMBER_BYTES], "little")


def collection_key(name: str) -> str:
    """Return the key from which a collection's ID is derived."""
    return f"collection:{name}"


def member_key(name: str, index: int) -> str:
    """Return the key from which a member's ID is derived."""
    return f"member:{index}:{name}"


def pack_index(ids: list[ObjectID], sizes: list[int], rows: list[int] | None) -> bytes:
    """Return the packed index of a collection; see :class:`Contents`."""
    parts = [oid.binary for oid in ids]
    parts.extend(size.to_bytes(NUMBER_BYTES, "little") for size in sizes)
    if rows is not None:
        parts.extend(count.to_bytes(NUMBER_BYTES, "little") for count in rows)
    return b"".join(parts)


def member_node(card: Card, value: Node) -> Node:
    """Return a member's root node; ``value`` is its value's node."""
    params = {
        "collection": card.collection,
        "index": card.index,
        "writer": card.writer,
        "traits": _traits_params(card.traits),
    }
    return Node(MEMBER_CODEC, VERSION, params, children=[value])


def card_of(node: Node) -> Card:
    """Parse the card in a member's node.

    Raises:
        CorruptData: the node is not a member's.
    """
    params = _params(node, MEMBER_CODEC)
    if len(node.children) != 1:
        raise CorruptData("a member of a collection has no value")
    return Card(
        _text(params, "collection"), _number(params, "index"), _text(params, "writer"), _traits(params.get("traits"))
    )


def contents_node(contents: Contents, encoder: Encoder) -> Node:
    """Return the root node of a sealed collection."""
    node = Node(COLLECTION_CODEC, VERSION)
    node.params = {**_contents_params(contents), "index": store_bytes(encoder, node, contents.index)}
    return node


def contents_of(node: Node, decoder: Decoder) -> Contents:
    """Parse a sealed collection's node.

    Raises:
        CorruptData: it is inconsistent.
    """
    params = _params(node, COLLECTION_CODEC)
    traits = _traits(params.get("traits"))
    count = _number(params, "count")
    index = stored_bytes(node, decoder, params.get("index"))
    view = index if isinstance(index, bytes) else memoryview(index)
    wanted = count * (ID_BYTES + NUMBER_BYTES * (2 if traits.rows is not None else 1))
    if count > MOST_MEMBERS or len(view) != wanted:
        raise CorruptData(f"a collection of {count} members has an index of {len(view)} bytes, not {wanted}")
    return Contents(
        _text(params, "name"),
        _text(params, "scope"),
        _text(params, "session"),
        count,
        _number(params, "nbytes"),
        traits,
        view,
    )


def described(root: Node) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    """Return what reports show of an object: its type; for a collection, its summary; for a member, its position.

    Raises:
        CorruptData: the tree is inconsistent.
    """
    if root.codec == MEMBER_CODEC:
        card = card_of(root)
        return root.children[0].codec, None, {"name": card.collection, "index": card.index}
    if root.codec == COLLECTION_CODEC:
        params = _params(root, COLLECTION_CODEC)
        traits = _traits(params.get("traits"))
        numbers = {"members": _number(params, "count"), "nbytes": _number(params, "nbytes"), "rows": traits.rows}
        return root.codec, {"name": _text(params, "name"), **numbers, "type": traits.type}, None
    return root.codec, None, None


class MemberCodec(Codec):
    """A collection's member: decodes to its value; the card is for the collection only."""

    name = MEMBER_CODEC
    version = VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        raise UnsupportedType("a member is put by the builder that Store.collection returns")

    def decode(self, node: Node, decoder: Decoder) -> Any:
        card_of(node)
        return decoder.decode(node.children[0])


class CollectionCodec(Codec):
    """A sealed collection."""

    name = COLLECTION_CODEC
    version = VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        raise UnsupportedType("a collection is sealed by the builder that Store.collection returns")

    def decode(self, node: Node, decoder: Decoder) -> Any:
        from entrepot._collection import Collection

        return Collection(_store_of(decoder), contents_of(node, decoder), copy=decoder.copy)


class ReferenceCodec(Codec):
    """A collection put as a value: decodes to that collection, not to a copy of it."""

    name = REFERENCE_CODEC
    version = VERSION

    def encode(self, value: Any, encoder: Encoder) -> Node:
        from entrepot._collection import Collection

        if not isinstance(value, Collection):
            raise UnsupportedType(f"the codec of collections takes an entrepot.Collection, not a {type(value)}")
        params: dict[str, Any] = {"id": value.id.binary, "name": value.name, "digest": value.digest}
        if value.positions != range(value.count_sealed):
            kept = value.positions
            params["positions"] = [kept.start, len(kept), kept.step]
        return Node(self.name, self.version, params)

    def decode(self, node: Node, decoder: Decoder) -> Any:
        from entrepot._collection import referred

        params = _params(node, REFERENCE_CODEC)
        raw, digest, kept = params.get("id"), params.get("digest"), params.get("positions")
        if not isinstance(raw, bytes) or len(raw) != ID_BYTES or not isinstance(digest, bytes):
            raise CorruptData("a reference to a collection has no ID or no digest")
        positions = None
        if kept is not None:
            if not isinstance(kept, list) or len(kept) != 3 or not all(type(number) is int for number in kept):
                raise CorruptData("a reference to a slice of a collection does not say which members it has")
            positions = (kept[0], kept[1], kept[2])
        return referred(_store_of(decoder), ObjectID(raw), _text(params, "name"), digest, positions, copy=decoder.copy)


_here = __name__
SPECS = [
    CodecSpec(REFERENCE_CODEC, f"{_here}:ReferenceCodec", ("entrepot._collection:Collection",)),
    CodecSpec(COLLECTION_CODEC, f"{_here}:CollectionCodec"),
    CodecSpec(MEMBER_CODEC, f"{_here}:MemberCodec"),
]


def _store_of(decoder: Decoder) -> Any:
    if decoder.store is None:
        raise InvalidArgument("a collection is read through a store: get it with Store.get")
    return decoder.store


def _contents_params(contents: Contents) -> dict[str, Any]:
    return {
        "name": contents.name,
        "scope": contents.scope,
        "session": contents.session,
        "count": contents.count,
        "nbytes": contents.nbytes,
        "traits": _traits_params(contents.traits),
    }


def _traits_params(traits: Traits) -> dict[str, Any]:
    params = {one.name: getattr(traits, one.name) for one in fields(Traits)}
    if traits.row_shape is not None:
        params["row_shape"] = list(traits.row_shape)
    return params


def _traits(raw: Any) -> Traits:
    if not isinstance(raw, dict) or raw.get("kind") not in KINDS:
        raise CorruptData("a collection or a member does not say what it holds")
    rows, shape, schema = raw.get("rows"), raw.get("row_shape"), raw.get("schema")
    if rows is not None:
        rows = _number(raw, "rows")
    if shape is not None:
        if not isinstance(shape, list) or not all(_is_number(length) for length in shape):
            raise CorruptData(f"the shape of a tensor's row is {shape!r}")
        shape = tuple(shape)
    if schema is not None and not isinstance(schema, bytes):
        raise CorruptData("the schema of a collection is not an Arrow message")
    return Traits(_text(raw, "type"), raw["kind"], _text(raw, "layout"), rows, shape, schema)


def _params(node: Node, codec: str) -> dict[str, Any]:
    if node.codec != codec or not isinstance(node.params, dict):
        raise CorruptData(f"a node of {node.codec} is not one of {codec}")
    return node.params


def _text(params: dict[str, Any], key: str) -> str:
    found = params.get(key)
    if not isinstance(found, str):
        raise CorruptData(f"a collection's metadata has no text {key!r}")
    return found


def _number(params: dict[str, Any], key: str) -> int:
    found = params.get(key)
    if not _is_number(found):
        raise CorruptData(f"a collection's metadata has {key!r} {found!r}, not a whole number from 0 on")
    return int(found)  # type: ignore[arg-type]


def _is_number(found: Any) -> bool:
    return type(found) is int and 0 <= found <= _MAX_NUMBER
