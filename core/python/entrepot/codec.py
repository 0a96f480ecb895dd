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
"""

from __future__ import annotations

import importlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from entrepot._tree import MAX_DEPTH as MAX_DEPTH
from entrepot._tree import TREE_FORMAT_VERSION as TREE_FORMAT_VERSION
from entrepot._tree import Node as Node
from entrepot._tree import inlined_bytes as inlined_bytes
from entrepot._tree import pack_tree as pack_tree
from entrepot._tree import unpack_tree as unpack_tree
from entrepot.errors import CorruptData, InvalidArgument, UnsupportedType, VersionMismatch

ENTRY_POINT_GROUP = "entrepot.codecs"
COMPANION = "entrepot_io.codecs"  # shipped with this package; importing it by name is far faster than entry points
PICKLE_CODEC = "python.pickle"

# Whether pickled values are accepted. A function accepts only the classes and functions whose full names it permits.
AllowPickle = bool | Callable[[str], bool]
CopyMode = Literal["never", "on_write", "always"]
COPY_MODES: tuple[CopyMode, ...] = ("never", "on_write", "always")


class Codec(ABC):
    """Turns values of some types into nodes and back. Instances are stateless and shared between threads."""

    name: ClassVar[str]
    version: ClassVar[int] = 1

    @abstractmethod
    def encode(self, value: Any, encoder: Encoder) -> Node:
        """Describe ``value``, handing its bytes to ``encoder``.

        Raises:
            UnsupportedType: this value cannot be preserved exactly although its type is supported; the registry then
                falls back to the pickle codec if that is allowed.
        """

    @abstractmethod
    def decode(self, node: Node, decoder: Decoder) -> Any:
        """Rebuild the value. ``node.version`` may be older than ``version``, but is never newer.

        Raises:
            CorruptData: the node does not describe a value of this codec.
        """


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """A codec's location and the types that it supports.

    Attributes:
        name: registry name, stored in every object.
        target: ``"module:Class"``, imported on first use.
        types: exact types as ``"module:qualname"`` (``type(v).__module__ + ":" + type(v).__qualname__``).
        base_types: types whose subclasses are supported too; the first match in method resolution order wins.
    """

    name: str
    target: str
    types: tuple[str, ...] = ()
    base_types: tuple[str, ...] = ()


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
                return codec.encode(value, self)
            except UnsupportedType:
                if not self.allow_pickle:
                    raise
                self._rewind(mark)
                return self.registry.by_name(PICKLE_CODEC).encode(value, self)
        finally:
            self._depth -= 1

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
    ) -> None:
        self.registry = registry
        self.copy: CopyMode = copy
        self.store = store
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
        """Rebuild a nested value."""
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
        return codec.decode(node, self)


class CodecRegistry:
    """Finds codecs by type and by name. Thread-safe: its tables are replaced, never modified in place."""

    def __init__(self, specs: Iterable[CodecSpec] = (), *, entry_points: bool = True) -> None:
        self._lock = threading.Lock()
        self._entry_points_pending = entry_points  # guarded by _lock
        self._companion_pending = entry_points  # cleared once, by whichever thread gets there first
        self._specs: dict[str, CodecSpec] = {}  # replaced under _lock
        self._exact: dict[str, str] = {}  # replaced under _lock
        self._bases: dict[str, str] = {}  # replaced under _lock
        self._by_type: dict[type, Codec] = {}  # cache; entries are added atomically
        self._instances: dict[str, Codec] = {}  # cache; entries are added atomically
        self.register(specs)

    def register(self, specs: Iterable[CodecSpec]) -> None:
        """Add codecs. A name or type that is already taken keeps its first codec.

        Raises:
            InvalidArgument: a spec's target is not of the form ``module:Class``.
        """
        with self._lock:
            by_name, exact, bases = dict(self._specs), dict(self._exact), dict(self._bases)
            for spec in specs:
                if spec.target.count(":") != 1:
                    raise InvalidArgument(
                        f"codec {spec.name!r}: target {spec.target!r} does not have the form module:Class"
                    )
                by_name.setdefault(spec.name, spec)
                for type_name in spec.types:
                    exact.setdefault(type_name, spec.name)
                for type_name in spec.base_types:
                    bases.setdefault(type_name, spec.name)
            self._specs, self._exact, self._bases = by_name, exact, bases
            self._by_type = {}

    def for_value(self, value: Any, *, allow_pickle: AllowPickle = True) -> Codec:
        """Return the codec for ``value``'s type, or the pickle codec if there is none and pickling is allowed.

        Raises:
            UnsupportedType: no codec supports the type, and pickling is not allowed.
        """
        cls = type(value)
        codec = self._by_type.get(cls)
        if codec is None:
            codec = self._find(cls)
            self._by_type[cls] = codec
        if codec.name == PICKLE_CODEC and not allow_pickle:
            raise UnsupportedType(
                f"no codec supports a value of type {cls.__module__}.{cls.__qualname__} and pickling is switched off: "
                "convert it to bytes, a NumPy array or an Arrow table, register a codec, or allow pickling "
                "(connect(allow_pickle=True), ENTREPOT_ALLOW_PICKLE=1)"
            )
        return codec

    def by_name(self, name: str) -> Codec:
        """Return the codec with this registry name.

        Raises:
            VersionMismatch: no installed package provides it.
            UnsupportedType: the codec needs a package that is not installed.
        """
        codec = self._instances.get(name)
        if codec is not None:
            return codec
        spec = self._specs.get(name)
        for load in (self._load_companion, self._load_entry_points):
            if spec is None:
                load()
                spec = self._specs.get(name)
        if spec is None:
            raise VersionMismatch(
                f"no codec named {name!r} is installed here: install the package (or the newer version) that wrote it"
            )
        module_name, _, class_name = spec.target.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UnsupportedType(f"the codec {name!r} needs a package that is not installed here: {error}") from error
        instance: Codec = getattr(module, class_name)()
        return self._instances.setdefault(name, instance)

    def names(self) -> list[str]:
        """Return all registry names, sorted."""
        self._load_entry_points()
        return sorted(self._specs)

    def _find(self, cls: type) -> Codec:
        name = self._exact.get(_type_name(cls))
        # Searching for other packages' codecs takes about 50 ms; well-known types must not pay for it.
        for load in (self._load_companion, self._load_entry_points):
            if name is None:
                load()
                name = self._exact.get(_type_name(cls))
        if name is None:
            for base in cls.__mro__:
                name = self._bases.get(_type_name(base))
                if name is not None:
                    break
        return self.by_name(name or PICKLE_CODEC)

    def _load_companion(self) -> None:
        if not self._companion_pending:
            return
        try:
            self.register(importlib.import_module(COMPANION).codec_specs())
        except ModuleNotFoundError as error:
            if error.name not in (COMPANION, COMPANION.partition(".")[0]):
                raise
        self._companion_pending = False

    def _load_entry_points(self) -> None:
        if not self._entry_points_pending:
            return
        with self._lock:
            if not self._entry_points_pending:
                return
            from importlib import metadata  # imported late: bytes need no codec, and this takes 10 ms

            entries = list(metadata.entry_points(group=ENTRY_POINT_GROUP))
        specs: list[CodecSpec] = []
        for entry in entries:
            specs.extend(entry.load()())
        self.register(specs)
        with self._lock:
            self._entry_points_pending = False


def _type_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


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
