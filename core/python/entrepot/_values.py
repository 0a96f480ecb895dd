"""Encoding and decoding of values: connects the codecs with the client."""

from __future__ import annotations

from typing import Any

from entrepot import _blob, _collection_tree, _core, _small
from entrepot.codec import (
    COPY_MODES,
    AllowPickle,
    CodecRegistry,
    CopyMode,
    Decoder,
    default_registry,
    encode_value,
    unpack_tree,
)
from entrepot.ids import ObjectID

_registry: CodecRegistry | None = None
_ON_WRITE = COPY_MODES.index("on_write")


def codecs() -> CodecRegistry:
    """Return the codecs of this process: built-in ones, those from entry points, and those of blobs and collections."""
    global _registry
    if _registry is None:
        registry = default_registry()
        registry.register([*_blob.SPECS, *_collection_tree.SPECS])
        _registry = registry
    return _registry


def item_of(
    value: Any,
    oid: ObjectID,
    fresh: bool,
    session: int,
    name: str = "",
    replace: bool = False,
    *,
    allow_pickle: AllowPickle,
) -> _core.Item:
    """Encode a value into an item for the client's put."""
    if type(value) is bytes and len(value) <= _small.MOST_BYTES:
        return (oid.binary, session, replace, fresh, name, _small.tree_of(value), ())
    tree, buffers, _ = encode_value(value, codecs(), allow_pickle=allow_pickle)
    return (oid.binary, session, replace, fresh, name, tree, buffers)


def value_of(found: _core.Object, copy: CopyMode, mode: int, *, allow_pickle: AllowPickle, store: Any = None) -> Any:
    """Decode an object returned by the client; ``store`` is where it came from."""
    decoder = Decoder(
        codecs(),
        lambda index: found.buffer(index, mode),
        found.buffer_count,
        copy=copy,
        allow_pickle=allow_pickle,
        store=store,
        private=lambda index: found.buffer(index, _ON_WRITE),
    )
    return decoder.decode(unpack_tree(found.tree))
