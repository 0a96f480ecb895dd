"""Values on their way into the store and out of it: the codecs do the work, this joins them to the client."""

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
    """The codecs of this process: built in, found by entry points, and those of blobs and collections."""
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
    """A value as the client puts it."""
    if type(value) is bytes and len(value) <= _small.MOST_BYTES:
        return (oid.binary, session, replace, fresh, name, _small.tree_of(value), ())
    tree, buffers, _ = encode_value(value, codecs(), allow_pickle=allow_pickle)
    return (oid.binary, session, replace, fresh, name, tree, buffers)


def value_of(found: _core.Object, copy: CopyMode, mode: int, *, allow_pickle: AllowPickle, store: Any = None) -> Any:
    """The value of an object that the client got; ``store`` is where it came from."""
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
