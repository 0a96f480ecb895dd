"""Encoding and decoding of values: connects the codecs with the client."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Protocol

from entrepot import _core
from entrepot._codecs import blob, inline_bytes
from entrepot.codec import (
    COPY_MODES,
    AllowPickle,
    CodecRegistry,
    CodecSpec,
    CopyMode,
    Decoder,
    ObjectStrings,
    default_registry,
    encode_value,
    unpack_tree,
)
from entrepot.ids import ObjectID

_lock = threading.Lock()
_specs: list[CodecSpec] = [  # guarded by _lock
    *blob.SPECS,
    CodecSpec(
        "plasma.Object",
        "entrepot._codecs.plasma_objects:PlasmaObjectCodec",
        ("entrepot._codecs.plasma_objects:PlasmaObject",),
    ),
]
_registry: CodecRegistry | None = None  # set under _lock
_ON_WRITE = COPY_MODES.index("on_write")


def add_codecs(specs: Iterable[CodecSpec]) -> None:
    """Add codecs of this package that are above this module, when the module that names them is imported."""
    with _lock:
        _specs.extend(specs)
        if _registry is not None:
            _registry.register(_specs)


def codec_registry() -> CodecRegistry:
    """Return the codecs of this process: built-in ones, those from entry points, and those of blobs and collections."""
    global _registry
    if _registry is None:
        with _lock:
            registry = default_registry()
            registry.register(_specs)
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


class ReadSettings(Protocol):
    """What a store says about how values are read through it."""

    @property
    def _allow_pickle(self) -> AllowPickle: ...
    @property
    def _object_strings(self) -> ObjectStrings: ...


def decode_from(store: ReadSettings, pinned_object: _core.Object, copy: CopyMode, mode: int) -> Any:
    """Decode an object as the store that it came from says."""
    return decode_object(
        pinned_object,
        copy,
        mode,
        allow_pickle=store._allow_pickle,
        object_strings=store._object_strings,
        store=store,
    )


def decode_object(
    pinned_object: _core.Object,
    copy: CopyMode,
    mode: int,
    *,
    allow_pickle: AllowPickle,
    object_strings: ObjectStrings = "object",
    store: Any = None,
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
        object_strings=object_strings,
    )
    return decoder.decode(unpack_tree(pinned_object.tree))
