"""Encoding and decoding of values: connects the codecs with the client."""

from __future__ import annotations

from typing import Any

from entrepot import _core
from entrepot._codecs import blob, inline_bytes
from entrepot._collections import metadata
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


def codec_registry() -> CodecRegistry:
    """Return the codecs of this process: built-in ones, those from entry points, and those of blobs and collections."""
    global _registry
    if _registry is None:
        registry = default_registry()
        registry.register([*blob.SPECS, *metadata.SPECS])
        _registry = registry
    return _registry


def encode_item(
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
    if type(value) is bytes and len(value) <= inline_bytes.MAX_BYTES:
        return (oid.binary, session, replace, fresh, name, inline_bytes.tree_of(value), ())
    tree, buffers, _ = encode_value(value, codec_registry(), allow_pickle=allow_pickle)
    return (oid.binary, session, replace, fresh, name, tree, buffers)


def decode_object(
    pinned_object: _core.Object, copy: CopyMode, mode: int, *, allow_pickle: AllowPickle, store: Any = None
) -> Any:
    """Decode an object returned by the client; ``store`` is where it came from."""
    decoder = Decoder(
        codec_registry(),
        lambda index: pinned_object.buffer(index, mode),
        pinned_object.buffer_count,
        copy=copy,
        allow_pickle=allow_pickle,
        store=store,
        private=lambda index: pinned_object.buffer(index, _ON_WRITE),
    )
    return decoder.decode(unpack_tree(pinned_object.tree))
