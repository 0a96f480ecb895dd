"""Codec for plain data, as one msgpack document.

Plain data (None, numbers, text, bytes, dates, and lists, tuples, sets and dictionaries of those, nested) becomes one
document, however large: a dictionary of 100,000 integers is one node. A value inside it that has a codec of its own (an
array, a table) becomes a child node, and a tag in the document marks its place.

msgpack alone is not exact: it has no tuple, no set, no complex number, and no integer beyond 64 bits. Those are encoded
as *tags* (msgpack extension types). A container's tag is the first element of an array that holds its items, so that
writing and reading need no nested document. A list, dictionary or set that occurs again is also encoded as a tag: the
position of its first occurrence in the order in which containers end. Decoding then yields one shared container. A
value with a codec of its own, such as an array, that occurs again is a child node, however small, and decoded once.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Set
from decimal import Decimal
from typing import Any

import msgpack

from entrepot._codecs.byte_storage import INLINE_BYTES, load_bytes, store_bytes
from entrepot.codec import MAX_DEPTH, PICKLE_CODEC, Codec, Decoder, Encoder, Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData, EntrepotError, UnsupportedType
from entrepot.ids import ObjectID

# More visits than this to containers already seen are taken for data with exponential repetition
# (``a = [b, b]; b = [c, c]; ...``); pickle preserves such sharing, a document cannot.
MAX_REPEATED_VISITS = 100_000

_HAS_CONTAINER_TAGS = 1
_HAS_SURROGATES = 2
_HAS_SHARED = 4

_PLAIN_VERSION = 1  # version of a document without shared containers, which older programs can read too

_TUPLE, _SET, _FROZENSET, _PAIRS = 1, 2, 3, 4
MAX_IN_TREE = 10_000  # children that have no buffers, and are nodes of the tree so that they are found in it
_BIG_INT, _COMPLEX, _BYTEARRAY, _CHILD, _INLINE_CHILD, _OBJECT_ID = 16, 17, 18, 19, 20, 21
_DATE, _DATETIME, _TIME, _TIMEDELTA, _DECIMAL, _UUID = 22, 23, 24, 25, 26, 27
_SHARED = 28  # a container already read: its position in the order in which containers end

_FAST_KINDS = frozenset({type(None), bool, int, float, str})
_FAST_KEYS = _FAST_KINDS | {bytes}


def _pack_time(value: dt.datetime | dt.time) -> bytes:
    if value.tzinfo is not None and value.tzinfo is not dt.timezone.utc:
        raise UnsupportedType(
            f"a time with time zone {value.tzinfo!r} in plain data must be pickled, and pickling is switched off: "
            "convert it to UTC (datetime.timezone.utc)"
        )
    return bytes([value.fold]) + value.isoformat().encode()


def _pack_big_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


# Exact type -> (tag, function that packs the value). All are immutable or copied, so a tag needs no identity.
_LEAF_TAGS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    complex: (_COMPLEX, lambda value: struct.pack("<dd", value.real, value.imag)),
    bytearray: (_BYTEARRAY, bytes),
    ObjectID: (_OBJECT_ID, lambda value: bytes(value.binary)),
    dt.date: (_DATE, lambda value: str(value.isoformat()).encode()),
    dt.datetime: (_DATETIME, _pack_time),
    dt.time: (_TIME, _pack_time),
    dt.timedelta: (_TIMEDELTA, lambda value: struct.pack("<iii", value.days, value.seconds, value.microseconds)),
    Decimal: (_DECIMAL, lambda value: str(value).encode()),
    uuid.UUID: (_UUID, lambda value: bytes(value.bytes)),
}

_UNPACK_LEAF: dict[int, Callable[[bytes], Any]] = {
    _BIG_INT: lambda raw: int.from_bytes(raw, "little", signed=True),
    _COMPLEX: lambda raw: complex(*struct.unpack("<dd", raw)),
    _BYTEARRAY: bytearray,
    _OBJECT_ID: ObjectID,
    _DATE: lambda raw: dt.date.fromisoformat(raw.decode()),
    _DATETIME: lambda raw: dt.datetime.fromisoformat(raw[1:].decode()).replace(fold=raw[0]),
    _TIME: lambda raw: dt.time.fromisoformat(raw[1:].decode()).replace(fold=raw[0]),
    _TIMEDELTA: lambda raw: dt.timedelta(*struct.unpack("<iii", raw)),
    _DECIMAL: lambda raw: Decimal(raw.decode()),
    _UUID: lambda raw: uuid.UUID(bytes=raw),
}


def _tag_beyond_64_bits(value: Any) -> Any:
    # msgpack calls this for values that it cannot write; all but large integers have been replaced by tags before.
    if type(value) is not int:
        raise UnsupportedType(f"plain data contains a {type(value).__name__}, which cannot be represented exactly")
    return msgpack.ExtType(_BIG_INT, _pack_big_int(value))


class _SharedContainerFound(Exception):
    """A container occurs twice: the document must be rewritten with container positions."""


class _DataWriter:
    """Converts one nest of plain containers into a form that msgpack writes exactly. Single use.

    Containers whose items are all None, bool, int, float or str are passed to msgpack unchanged; collecting the set of
    the items' types runs at C speed, so large plain data costs nanoseconds per item.
    """

    def __init__(self, encoder: Encoder, shared: bool = False, shared_children: Set[int] = frozenset()) -> None:
        self.children: list[Node] = []
        self.has_container_tags = False
        self.has_shared = shared
        self._encoder = encoder
        self._container_ids: set[int] = set()  # ids of containers; the value keeps them all alive, so ids stay unique
        # If containers are shared: id of a list, dictionary or set -> its position in the order in which they end.
        self._positions: dict[int, int] | None = {} if shared else None
        self._ended_count = 0  # containers ended so far, if containers are shared
        self._child_tags: dict[int, Any] = {}  # id of a value with its own codec -> its tag
        self._shared_children = shared_children  # ids of values that are child nodes because they occur twice
        self._inline_ids: set[int] = set()  # ids of values written into the document, which a reader may modify
        self.repeated_ids: set[int] = set()  # those of them that occur again
        self._open_ids: set[int] = set()  # ids of the containers being written; meeting one of them again is a cycle
        self._visited_ids: set[int] = set()
        self._repeated_visits = 0

    def write(self, value: Any) -> Any:
        kind = type(value)
        if kind in _FAST_KINDS:
            return value
        if kind is bytes and len(value) <= INLINE_BYTES:
            return value
        if kind is tuple and _FAST_KINDS.issuperset(map(type, value)):
            self.has_container_tags = True
            self._ended_count += 1
            return [_TUPLE_TAG, *value]
        if kind in (list, dict, tuple, set, frozenset):
            return self._container(value, kind)
        if kind in _LEAF_TAGS and not (kind is bytearray and len(value) > INLINE_BYTES):
            zone = getattr(value, "tzinfo", None)
            if kind is bytearray:
                if id(value) in self._shared_children:
                    return self._child(value)
                self._note_inline(value)
            if zone is None or zone is dt.timezone.utc or not self._encoder.allow_pickle:
                tag, pack = _LEAF_TAGS[kind]
                return msgpack.ExtType(tag, pack(value))
            raise UnsupportedType("a time with a custom time zone must be pickled")
        return self._child(value)

    def _container(self, value: Any, kind: type) -> Any:
        key = id(value)
        if self._positions is not None:
            return self._shared_container(value, kind, key, self._positions)
        if key in self._container_ids and kind is not tuple and kind is not frozenset:
            raise _SharedContainerFound
        self._container_ids.add(key)
        return self._contents(value, kind)

    def _shared_container(self, value: Any, kind: type, key: int, positions: dict[int, int]) -> Any:
        if key in positions:
            return msgpack.ExtType(_SHARED, struct.pack("<I", positions[key]))
        written = self._contents(value, kind)
        if kind is not tuple and kind is not frozenset:  # immutable ones need no sharing
            positions[key] = self._ended_count
        self._ended_count += 1
        return written

    def _contents(self, value: Any, kind: type) -> Any:
        if (kind is list and _FAST_KINDS.issuperset(map(type, value))) or (
            kind is dict
            and _FAST_KINDS.issuperset(map(type, value.values()))
            and _FAST_KEYS.issuperset(map(type, value))
        ):
            return value
        key = id(value)
        if key in self._open_ids:
            raise UnsupportedType("the value contains itself: put its parts as separate objects, or allow pickling")
        if len(self._open_ids) >= MAX_DEPTH:
            raise UnsupportedType(
                f"the value is nested more than {MAX_DEPTH} levels deep: flatten it, or put its "
                "parts as separate objects"
            )
        if key in self._visited_ids:
            self._repeated_visits += 1
            if self._repeated_visits > MAX_REPEATED_VISITS:
                raise UnsupportedType("the value repeats the same containers too often: put them as separate objects")
        self._visited_ids.add(key)
        self._open_ids.add(key)
        try:
            return self._items(value, kind)
        finally:
            self._open_ids.discard(key)

    def _items(self, value: Any, kind: type) -> Any:
        write = self.write
        if kind is list:
            return [write(item) for item in value]
        if kind is dict and _FAST_KEYS.issuperset(map(type, value)):
            return {key: write(item) for key, item in value.items()}
        self.has_container_tags = True
        if kind is tuple:
            return [_TUPLE_TAG, *(write(item) for item in value)]
        if kind is dict:
            pairs: list[Any] = [_PAIRS_TAG]
            for key, item in value.items():
                pairs.append(write(key))
                pairs.append(write(item))
            return pairs
        tag = _SET_TAG if kind is set else _FROZENSET_TAG
        return [tag, *(write(item) for item in value)]

    def _child(self, value: Any) -> Any:
        existing_tag = self._child_tags.get(id(value))
        if existing_tag is not None:
            return existing_tag
        encoder = self._encoder
        codec = encoder.registry.for_value(value, allow_pickle=encoder.allow_pickle)
        if codec.name == PICKLE_CODEC or codec.pickles:
            # Pickling the whole preserves references between its parts; arrays inside still use their codecs.
            raise UnsupportedType(f"plain data contains a {type(value).__qualname__}, which must be pickled")
        inlined = encoder.inlined
        node = encoder.encode(value)
        if node.codec == PICKLE_CODEC:  # its codec has declined this value, such as an array of objects
            raise UnsupportedType(f"plain data contains a {type(value).__qualname__} that must be pickled")
        in_tree = getattr(codec, "in_tree", False) and len(self.children) < MAX_IN_TREE
        in_tree = in_tree or id(value) in self._shared_children
        if node.buffers or node.children or in_tree:
            tag = msgpack.ExtType(_CHILD, struct.pack("<I", len(self.children)))
            self.children.append(node)
            self._child_tags[id(value)] = tag
        else:
            encoder.inlined = inlined  # counted with the document instead
            self._note_inline(value)
            tag = msgpack.ExtType(_INLINE_CHILD, pack_tree(node))
        return tag

    def _note_inline(self, value: Any) -> None:
        (self.repeated_ids if id(value) in self._inline_ids else self._inline_ids).add(id(value))


_TUPLE_TAG = msgpack.ExtType(_TUPLE, b"")
_SET_TAG = msgpack.ExtType(_SET, b"")
_FROZENSET_TAG = msgpack.ExtType(_FROZENSET, b"")
_PAIRS_TAG = msgpack.ExtType(_PAIRS, b"")


class _ContainerTag:
    """Placeholder for a container's tag until the array that it opens is complete."""

    def __init__(self, build: Callable[[list[Any]], Any]) -> None:
        self.build = build


def _build_pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise CorruptData("a dictionary in plain data has a key without a value")
    pairs = iter(items)
    return dict(zip(pairs, pairs, strict=True))


_CONTAINER_TAGS = {
    _TUPLE: _ContainerTag(tuple),
    _SET: _ContainerTag(set),
    _FROZENSET: _ContainerTag(frozenset),
    _PAIRS: _ContainerTag(_build_pairs),
}


class _DataReader:
    """Reverses :class:`_DataWriter` while msgpack reads. Single use."""

    def __init__(self, node: Node, decoder: Decoder) -> None:
        self.pending_tags = 0  # container tags whose array is not complete yet; 0 at the end of a valid document
        self._children = node.children
        self._decoder = decoder
        self._decoded: dict[int, Any] = {}
        self._ended_containers: list[Any] = []  # containers in the order in which they ended, if containers are shared

    def read_tag(self, code: int, raw: bytes) -> Any:
        container = _CONTAINER_TAGS.get(code)
        if container is not None:
            self.pending_tags += 1
            return container
        if code == _CHILD:
            (index,) = struct.unpack("<I", raw)
            if index not in self._decoded:
                self._decoded[index] = self._decoder.decode(self._children[index])
            return self._decoded[index]
        if code == _INLINE_CHILD:
            return self._decoder.decode(unpack_tree(raw))
        if code == _SHARED:
            (position,) = struct.unpack("<I", raw)
            return self._ended_containers[position]
        unpack = _UNPACK_LEAF.get(code)
        if unpack is None:
            raise CorruptData(f"plain data has an unknown tag {code}")
        return unpack(raw)

    def build_array(self, items: list[Any]) -> Any:
        if items and type(items[0]) is _ContainerTag:
            self.pending_tags -= 1
            return items[0].build(items[1:])
        return items

    def record_array(self, items: list[Any]) -> Any:
        return self.record_container(self.build_array(items))

    def record_container(self, container: Any) -> Any:
        self._ended_containers.append(container)
        return container


class DataCodec(Codec):
    """Plain Python data as one msgpack document; arrays and tables inside it as child nodes.

    So are values whose codec has ``in_tree = True``, to be found without reading the document.
    """

    name = "python.data"
    version = 2

    def encode(self, value: Any, encoder: Encoder) -> Node:
        mark = encoder._mark()  # pyright: ignore[reportPrivateUsage]
        try:
            shared, shared_children = False, set[int]()
            while True:  # ends, as each repetition adds to what it has learned
                writer = _DataWriter(encoder, shared, shared_children)
                try:
                    tree = writer.write(value)
                except _SharedContainerFound:
                    shared = True
                else:
                    if not writer.repeated_ids:
                        break
                    shared_children |= writer.repeated_ids
                encoder._rewind(mark)  # pyright: ignore[reportPrivateUsage]
        except RecursionError as error:
            raise UnsupportedType("the value is nested too deeply for this stack: flatten it") from error
        flags = (_HAS_CONTAINER_TAGS if writer.has_container_tags else 0) | (_HAS_SHARED if writer.has_shared else 0)
        options: dict[str, Any] = {"strict_types": True, "use_bin_type": True, "default": _tag_beyond_64_bits}
        try:
            document = msgpack.packb(tree, **options)
        except UnicodeEncodeError:
            flags |= _HAS_SURROGATES
            document = msgpack.packb(tree, unicode_errors="surrogatepass", **options)
        except (ValueError, OverflowError) as error:  # more than 2**32 items, or a string over 4 GiB
            raise UnsupportedType(
                f"the value does not fit into one document: {error}; put its parts as separate objects"
            ) from error
        version = self.version if writer.has_shared else _PLAIN_VERSION
        node = Node(self.name, version, children=writer.children)
        node.params = [flags, store_bytes(encoder, node, document)]
        return node

    def decode(self, node: Node, decoder: Decoder) -> Any:
        if not isinstance(node.params, list) or len(node.params) != 2 or type(node.params[0]) is not int:
            raise CorruptData("a python.data node has no document")
        flags, inline = node.params
        reader = _DataReader(node, decoder)
        options: dict[str, Any] = {"raw": False, "strict_map_key": False, "ext_hook": reader.read_tag}
        if flags & _HAS_CONTAINER_TAGS:
            options["list_hook"] = reader.build_array
        if flags & _HAS_SHARED:
            options |= {"list_hook": reader.record_array, "object_hook": reader.record_container}
        if flags & _HAS_SURROGATES:
            options["unicode_errors"] = "surrogatepass"
        try:
            value = msgpack.unpackb(load_bytes(node, decoder, inline), **options)
        except (EntrepotError, MemoryError):
            raise
        except Exception as error:  # msgpack and the leaves' constructors raise many types for bad input
            raise CorruptData(f"plain data cannot be read: {type(error).__name__}: {error}") from error
        if reader.pending_tags:
            raise CorruptData("plain data has a container tag outside an array")
        return value
