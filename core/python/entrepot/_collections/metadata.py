"""Trees of collections: of a member, of a sealed collection, and of a reference to one; encoding and validation.

Three codecs, described in ``docs/formats/collections.md``:

- ``entrepot.member``: a value and its metadata: which collection it belongs to, at which index, and the traits that all
  members must share. The producer writes this metadata because it has the value at hand; sealing reads nothing else.
- ``entrepot.collection``: the collection itself: the members' IDs in order, their sizes and row counts.
- ``entrepot.collection_reference``: what a collection is encoded as when it is put as a value, or within one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from entrepot._codecs.byte_storage import load_bytes, store_bytes
from entrepot._codecs.encoding import add_codecs
from entrepot.codec import CodecSpec, Decoder, Encoder, Node, codec_of, pack_tree, unpack_tree
from entrepot.errors import CorruptData
from entrepot.ids import ID_BYTES, ObjectID

MEMBER_CODEC = "entrepot.member"
COLLECTION_CODEC = "entrepot.collection"
REFERENCE_CODEC = "entrepot.collection_reference"
VERSION = 1
SELECTION_VERSION = 2  # of a reference to members that are no range
_CODECS = "entrepot._collections.codecs"
SPECS = [
    CodecSpec(REFERENCE_CODEC, f"{_CODECS}:ReferenceCodec", ("entrepot._collections.collection:Collection",)),
    CodecSpec(COLLECTION_CODEC, f"{_CODECS}:CollectionCodec"),
    CodecSpec(MEMBER_CODEC, f"{_CODECS}:MemberCodec"),
]
add_codecs(SPECS)

TABLE, TENSOR, VALUE = "table", "tensor", "value"
KINDS = (TABLE, TENSOR, VALUE)
NUMBER_BYTES = 8
DIGEST_BYTES = 16
MAX_MEMBERS = 1 << 26  # an index of 2.4 GB; bounds what a damaged count could make us allocate
_MAX_NUMBER = 2**63 - 1
_COLLECTION_IN_TREE = COLLECTION_CODEC.encode()  # and so REFERENCE_CODEC's beginning
_DATA_IN_TREE = b"python.data"


@dataclass(frozen=True, slots=True)
class ValueTraits:
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
class MemberMeta:
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
    traits: ValueTraits


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
    traits: ValueTraits
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
        offset = start + position * NUMBER_BYTES
        return int.from_bytes(self.index[offset : offset + NUMBER_BYTES], "little")


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


def member_node(meta: MemberMeta, value: Node) -> Node:
    """Return a member's root node; ``value`` is its value's node."""
    params = {
        "collection": meta.collection,
        "index": meta.index,
        "writer": meta.writer,
        "traits": traits_params(meta.traits),
    }
    return Node(MEMBER_CODEC, VERSION, params, children=[value])


def parse_member_meta(node: Node) -> MemberMeta:
    """Parse the metadata in a member's node.

    Raises:
        CorruptData: the node is not a member's.
    """
    params = checked_params(node, MEMBER_CODEC)
    if len(node.children) != 1:
        raise CorruptData("a member of a collection has no value")
    return MemberMeta(
        text_param(params, "collection"),
        _number(params, "index"),
        text_param(params, "writer"),
        parse_traits(params.get("traits")),
    )


def contents_node(contents: Contents, encoder: Encoder) -> Node:
    """Return the root node of a sealed collection."""
    node = Node(COLLECTION_CODEC, VERSION)
    node.params = {**_contents_params(contents), "index": store_bytes(encoder, node, contents.index)}
    return node


def parse_contents(node: Node, decoder: Decoder) -> Contents:
    """Parse a sealed collection's node.

    Raises:
        CorruptData: it is inconsistent.
    """
    params = checked_params(node, COLLECTION_CODEC)
    traits = parse_traits(params.get("traits"))
    count = _number(params, "count")
    index = load_bytes(node, decoder, params.get("index"))
    view = index if isinstance(index, bytes) else memoryview(index)
    expected_bytes = count * (ID_BYTES + NUMBER_BYTES * (2 if traits.rows is not None else 1))
    if count > MAX_MEMBERS or len(view) != expected_bytes:
        raise CorruptData(f"a collection of {count} members has an index of {len(view)} bytes, not {expected_bytes}")
    return Contents(
        text_param(params, "name"),
        text_param(params, "scope"),
        text_param(params, "session"),
        count,
        _number(params, "nbytes"),
        traits,
        view,
    )


def summarize(tree: bytes) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    """Return what reports show of an object: its type; for a collection, its summary; for a member, its position.

    Args:
        tree: its packed tree, of which only the beginning is read for any other object.

    Raises:
        CorruptData: the tree is inconsistent.
        VersionMismatch: its format is newer than this code.
    """
    codec = codec_of(tree)
    if codec is not None and codec not in (MEMBER_CODEC, COLLECTION_CODEC):
        return codec, None, None
    root = unpack_tree(tree)
    if root.codec == MEMBER_CODEC:
        meta = parse_member_meta(root)
        return root.children[0].codec, None, {"name": meta.collection, "index": meta.index}
    if root.codec == COLLECTION_CODEC:
        params = checked_params(root, COLLECTION_CODEC)
        traits = parse_traits(params.get("traits"))
        numbers = {"members": _number(params, "count"), "nbytes": _number(params, "nbytes"), "rows": traits.rows}
        return root.codec, {"name": text_param(params, "name"), **numbers, "type": traits.type}, None
    return root.codec, None, None


def may_refer(tree: bytes, buffer_bytes: int) -> bool:
    """Return whether an object may refer to others: a collection to its members, a value to collections within it.

    Args:
        tree: its packed tree.
        buffer_bytes: the size of its buffers; plain data that is longer than a tree may be has its references there.
    """
    return _COLLECTION_IN_TREE in tree or (buffer_bytes > 0 and _DATA_IN_TREE in tree)


def _contents_params(contents: Contents) -> dict[str, Any]:
    return {
        "name": contents.name,
        "scope": contents.scope,
        "session": contents.session,
        "count": contents.count,
        "nbytes": contents.nbytes,
        "traits": traits_params(contents.traits),
    }


def traits_params(traits: ValueTraits) -> dict[str, Any]:
    """Return traits as plain values, as they are stored."""
    params = {attribute.name: getattr(traits, attribute.name) for attribute in fields(ValueTraits)}
    if traits.row_shape is not None:
        params["row_shape"] = list(traits.row_shape)
    return params


def parse_traits(raw: Any) -> ValueTraits:
    """Parse what :func:`traits_params` returned.

    Raises:
        CorruptData: it is something else.
    """
    if not isinstance(raw, dict) or raw.get("kind") not in KINDS:
        raise CorruptData("a collection or member does not specify what it contains")
    rows, shape, schema = raw.get("rows"), raw.get("row_shape"), raw.get("schema")
    if rows is not None:
        rows = _number(raw, "rows")
    if shape is not None:
        if not isinstance(shape, list) or not all(_is_number(length) for length in shape):
            raise CorruptData(f"a tensor has an invalid row shape {shape!r}")
        shape = tuple(shape)
    if schema is not None and not isinstance(schema, bytes):
        raise CorruptData("the schema of a collection is not an Arrow message")
    return ValueTraits(text_param(raw, "type"), raw["kind"], text_param(raw, "layout"), rows, shape, schema)


def checked_params(node: Node, codec: str) -> dict[str, Any]:
    if node.codec != codec or not isinstance(node.params, dict):
        raise CorruptData(f"expected a {codec} node, but got {node.codec}")
    return node.params


def text_param(params: dict[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise CorruptData(f"a collection's metadata has no string {key!r}")
    return value


def _number(params: dict[str, Any], key: str) -> int:
    value = params.get(key)
    if not _is_number(value):
        raise CorruptData(f"a collection's metadata has {key!r} {value!r}, not an integer of 0 or more")
    return int(value)  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_NUMBER
