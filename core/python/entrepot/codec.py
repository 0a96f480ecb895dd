"""Codecs: how values become objects and objects become values.

A *codec* turns a value into a :class:`Node` (a typed description) and a list of buffers, and back. The client writes
the buffers into shared memory; the tree of nodes is stored with them as metadata. Decoding never copies a buffer: it
wraps the mapped bytes, which stay pinned as long as any value made from them lives.

For a ``put``, the registry finds the codec by the value's type (:meth:`CodecRegistry.for_value`), the codec calls
:meth:`Encoder.add_buffer` for each range of bytes and :meth:`Encoder.encode` for each nested value, and
:func:`pack_tree` serializes the tree. A ``get`` reverses these steps through a :class:`Decoder`.

Other packages register codecs through the entry-point group ``entrepot.codecs``: each entry names a function without
arguments that returns a list of :class:`CodecSpec`. Specs name their types as strings, so nothing is imported until a
value of that type is put or an object of that codec is read.

This module is also a decorator, ``@entrepot.codec(type, name=..., version=...)``, which registers a codec for a type of
the user's own in this process; see :mod:`entrepot._codecs.own_codecs`.
"""

from __future__ import annotations

import importlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal

from entrepot._codec_registry import PICKLE_CODEC as PICKLE_CODEC
from entrepot._codec_registry import AllowPickle as AllowPickle
from entrepot._codec_registry import AnyCodec, full_name
from entrepot._codec_registry import CodecRegistry as CodecRegistry
from entrepot._codec_specs import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
from entrepot._codec_specs import CodecSpec as CodecSpec
from entrepot._tree import MAX_DEPTH as MAX_DEPTH
from entrepot._tree import TREE_FORMAT_VERSION as TREE_FORMAT_VERSION
from entrepot._tree import Node as Node
from entrepot._tree import codec_of as codec_of
from entrepot._tree import inlined_bytes as inlined_bytes
from entrepot._tree import pack_tree as pack_tree
from entrepot._tree import unpack_tree as unpack_tree
from entrepot.errors import (
    CodecFailed,
    CorruptData,
    EntrepotError,
    UnsupportedType,
    VersionMismatch,
)

CopyMode = Literal["never", "on_write", "always"]
COPY_MODES: tuple[CopyMode, ...] = ("never", "on_write", "always")
# What columns of text that were put with dtype object are returned as.
ObjectStrings = Literal["object", "arrow"]
OBJECT_STRINGS: tuple[ObjectStrings, ...] = ("object", "arrow")


class NeverPickled(UnsupportedType):
    """Raised by a codec's ``encode`` for a value that must not be pickled instead."""

    short_code = "E305"


class Codec(ABC):
    """Turns values of some types into nodes and back. Instances are stateless and shared between threads.

    Attributes:
        name: registry name, stored in every node.
        version: version of the codec's own format, stored in every node.
        pickles: whether it pickles its values; a container of them is then pickled as a whole, so that references
            between its parts are preserved.
    """

    name: str
    version: int = 1
    pickles: bool = False

    @abstractmethod
    def encode(self, value: Any, encoder: Encoder) -> Node:
        """Describe ``value``, handing its bytes to ``encoder``.

        Raises:
            UnsupportedType: this value cannot be preserved exactly although its type is supported; the registry then
                falls back to the pickle codec if that is allowed, unless it is :class:`NeverPickled`.
        """

    @abstractmethod
    def decode(self, node: Node, decoder: Decoder) -> Any:
        """Rebuild the value. ``node.version`` may be older than ``version``, but is never newer.

        Raises:
            CorruptData: the node does not describe a value of this codec.
        """


class Encoder:
    """Collects the buffers of one value. Not thread-safe; each put creates its own.

    Attributes:
        buffers: the buffers added so far.
        inlined: how many of the value's own bytes codecs stored in nodes instead (:meth:`add_inlined`).

    Args:
        registry: finds codecs for nested values.
        allow_pickle: whether values without a codec of their own may be pickled; a function counts as yes.
    """

    def __init__(self, registry: CodecRegistry, *, allow_pickle: AllowPickle = True) -> None:
        self.registry = registry
        self.allow_pickle = allow_pickle
        self.buffers: list[Any] = []
        self.inlined = 0
        self._index_of: dict[tuple[int, int], int] = {}
        self._depth = 0

    def add_buffer(self, data: Any, address: int | None = None) -> int:
        """Add a contiguous range of bytes; return its index within the object.

        Args:
            data: an object with the buffer protocol, C-contiguous. It must not change until the put returns.
            address: its address in this process if known; equal (address, length) pairs are stored once.
        """
        if address is not None:
            length = data.nbytes if isinstance(data, memoryview) else memoryview(data).nbytes
            existing_index = self._index_of.get((address, length))
            if existing_index is not None:
                return existing_index
            self._index_of[(address, length)] = len(self.buffers)
        self.buffers.append(data)
        return len(self.buffers) - 1

    def add_inlined(self, data: bytes) -> bytes:
        """Count ``data`` as bytes of the value stored in a node; return it unchanged, for the node's params."""
        self.inlined += len(data)
        return data

    def encode(self, value: Any) -> Node:
        """Encode a nested value with the codec for its type.

        Raises:
            UnsupportedType: no codec supports it and pickling is off, or it is nested deeper than ``MAX_DEPTH``.
            CodecFailed: the codec raised an error of its own.
        """
        if self._depth >= MAX_DEPTH:
            raise UnsupportedType(
                f"the value is nested more than {MAX_DEPTH} levels deep (or contains itself): "
                "flatten it, or put its parts as separate objects"
            )
        self._depth += 1
        try:
            codec = self.registry.for_value(value, allow_pickle=self.allow_pickle)
            if codec.name == PICKLE_CODEC:
                return codec.encode(value, self)
            mark = self._mark()
            try:
                return self.encode_with(codec, value)
            except UnsupportedType as error:
                if not self.allow_pickle or isinstance(error, NeverPickled):
                    raise
                self._rewind(mark)
                return self.registry.by_name(PICKLE_CODEC).encode(value, self)
        finally:
            self._depth -= 1

    def encode_with(self, codec: AnyCodec, value: Any) -> Node:
        """Encode a value with this codec; errors that are not Entrepot's become ``CodecFailed``."""
        try:
            node: Any = codec.encode(value, self)
        except (EntrepotError, MemoryError):
            raise
        except Exception as error:  # a codec of another package, or of the user
            raise CodecFailed(
                f"the codec {codec.name!r} failed to encode a value of type {full_name(type(value))}: "
                f"{type(error).__name__}: {error}; nothing was stored"
            ) from error
        if type(node) is not Node:
            raise CodecFailed(
                f"the codec {codec.name!r} returned a {type(node).__name__}, not a Node, for a value of type "
                f"{full_name(type(value))}; nothing was stored"
            )
        return node

    def _mark(self) -> tuple[int, int]:
        return len(self.buffers), self.inlined

    def _rewind(self, mark: tuple[int, int]) -> None:
        count, self.inlined = mark
        del self.buffers[count:]
        self._index_of = {key: index for key, index in self._index_of.items() if index < count}


class Decoder:
    """Gives codecs the buffers of one object. Not thread-safe; each get creates its own.

    Args:
        registry: finds codecs for nested nodes.
        buffer: called with an index; returns an object with the buffer protocol that keeps the object pinned as long
            as it lives (read-only for ``copy="never"``, private and writable otherwise).
        count: number of buffers in the object.
        copy: the copy mode that the caller asked for; used by codecs whose library has a writable flag.
        store: the ``entrepot.Store`` that the object is read from, for codecs whose values refer to other objects;
            None: no store.
        private: called like ``buffer``; returns a private, writable image. Default: a copy.
        object_strings: what columns of text that were put with dtype ``object`` are returned as.
    """

    def __init__(
        self,
        registry: CodecRegistry,
        buffer: Callable[[int], Any],
        count: int,
        *,
        copy: CopyMode = "never",
        allow_pickle: AllowPickle = True,
        store: Any = None,
        private: Callable[[int], Any] | None = None,
        object_strings: ObjectStrings = "object",
    ) -> None:
        self.registry = registry
        self.copy: CopyMode = copy
        self.store = store
        self.object_strings: ObjectStrings = object_strings
        self._private = private or (lambda index: bytearray(buffer(index)))
        self.allow_pickle = allow_pickle
        self._buffer = buffer
        self._count = count

    @property
    def writable(self) -> bool:
        """Whether the reader may write to the buffers (``copy`` is not ``"never"``)."""
        return self.copy != "never"

    def private(self) -> Decoder:
        """Return a decoder with writable buffers, whatever the mode; for libraries that have no read-only values."""
        if self.writable:
            return self
        return Decoder(
            self.registry,
            self._private,
            self._count,
            copy="on_write",
            allow_pickle=self.allow_pickle,
            store=self.store,
            object_strings=self.object_strings,
        )

    def buffer(self, index: int) -> Any:
        """Return the bytes of buffer ``index``, without a copy, as an object with the buffer protocol.

        Raises:
            CorruptData: the object has no such buffer.
        """
        if not 0 <= index < self._count:
            raise CorruptData(f"the metadata refers to buffer {index}, but the object has {self._count}")
        return self._buffer(index)

    def decode(self, node: Node) -> Any:
        """Rebuild a nested value.

        Raises:
            VersionMismatch: its codec is unknown here, or older than the one that wrote it.
            CodecFailed: the codec raised an error of its own.
        """
        if node.codec == PICKLE_CODEC and not self.allow_pickle:
            raise UnsupportedType(
                "the object contains pickled data and pickling is switched off here; "
                "set ENTREPOT_ALLOW_PICKLE=1 if you trust its writer"
            )
        codec = self.registry.by_name(node.codec)
        if node.version > codec.version:
            raise VersionMismatch(
                f"the object was written by version {node.version} of the codec {node.codec!r}, "
                f"but this installation supports up to version {codec.version}: upgrade entrepot here"
            )
        try:
            return codec.decode(node, self)
        except (EntrepotError, MemoryError, Warning):
            raise
        except Exception as error:  # a codec of another package, or of the user
            raise CodecFailed(
                f"the codec {node.codec!r} failed to decode a value that version {node.version} of it wrote: "
                f"{type(error).__name__}: {error}"
            ) from error


_default: CodecRegistry | None = None
_default_lock = threading.Lock()


def default_registry() -> CodecRegistry:
    """Return the process-wide registry: the built-in codecs and those of installed packages."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                builtin = importlib.import_module("entrepot._codecs.builtin")
                _default = CodecRegistry(builtin.codec_specs())
    return _default


def loaded(module: str) -> bool:
    """Return whether the process has imported a library; codecs use it to skip types that a value cannot contain."""
    return module in sys.modules


def encode_value(
    value: Any, registry: CodecRegistry | None = None, *, allow_pickle: AllowPickle = True
) -> tuple[bytes, Sequence[Any], str]:
    """Encode a value; return its packed tree, its buffers, and the codec name of its root."""
    encoder = Encoder(registry or default_registry(), allow_pickle=allow_pickle)
    root = encoder.encode(value)
    return pack_tree(root, encoder.inlined), encoder.buffers, root.codec


class _CallableModule(ModuleType):
    """Makes ``entrepot.codec`` the decorator, too."""

    def __call__(self, kind: type, *, name: str | None = None, version: int = 1) -> Callable[[Any], Any]:
        own_codecs: Any = importlib.import_module("entrepot._codecs.own_codecs")
        decorator: Callable[[Any], Any] = own_codecs.codec(kind, name=name, version=version)
        return decorator


sys.modules[__name__].__class__ = _CallableModule
