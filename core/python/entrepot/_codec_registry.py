"""The registry: which codec is for which type, and which has which name."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from entrepot._codec_specs import CodecSpec, companion_specs, entry_point_specs, type_name
from entrepot._tree import Node
from entrepot.errors import InvalidArgument, UnsupportedType, VersionMismatch

PICKLE_CODEC = "python.pickle"
_RESERVED = ("entrepot.", "python.")  # names of codecs that are yet to come

# Whether pickled values are accepted. A function accepts only the classes and functions whose full names it permits.
AllowPickle = bool | Callable[[str], bool]


class AnyCodec(Protocol):
    """What the registry knows of a codec: see :class:`entrepot.codec.Codec`."""

    name: str
    version: int
    pickles: bool

    def encode(self, value: Any, encoder: Any) -> Node: ...

    def decode(self, node: Node, decoder: Any) -> Any: ...


class CodecRegistry:
    """Finds codecs by type and by name. Thread-safe: its tables are replaced, never modified in place."""

    def __init__(self, specs: Iterable[CodecSpec] = (), *, entry_points: bool = True) -> None:
        self._lock = threading.Lock()
        self._entry_points_pending = entry_points  # guarded by _lock
        self._companion_pending = entry_points  # cleared once, by whichever thread gets there first
        self._specs: dict[str, CodecSpec] = {}  # replaced under _lock
        self._exact: dict[str, str] = {}  # replaced under _lock
        self._bases: dict[str, str] = {}  # replaced under _lock
        self._own: dict[str, tuple[type, AnyCodec]] = {}  # by name: codecs registered one by one; replaced under _lock
        self._by_type: dict[type, AnyCodec] = {}  # cache; entries are added atomically
        self._instances: dict[str, AnyCodec] = {}  # cache; entries are added atomically
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

    def add(self, cls: type, codec: AnyCodec, target: str) -> None:
        """Add a codec of the user's own, for one exact type. Defining both again, as a notebook does, replaces them.

        Args:
            cls: the type.
            codec: with a name that no other codec has.
            target: ``"module:qualname"`` of what defines the codec: a spec that names it is not another codec.

        Raises:
            InvalidArgument: the name or the type has another codec.
        """
        self._load_companion()
        kind, name = type_name(cls), codec.name
        with self._lock:
            spec = self._specs.get(name)
            if name.startswith(_RESERVED) or (spec is not None and spec.target != target):
                owner = f" ({spec.target})" if spec is not None else ""
                raise InvalidArgument(f"the codec name {name!r} is taken by another codec{owner}: choose another name")
            others = {other: type_name(of) for other, (of, _) in self._own.items()}
            if others.get(name, kind) != kind:
                raise InvalidArgument(f"the codec name {name!r} is taken for the type {others[name]}: choose another")
            existing = self._exact.get(kind) or next((other for other, of in others.items() if of == kind), None)
            if existing is None:  # also a library's own class that a built-in codec supports through its base
                root = cls.__module__.partition(".")[0]
                bases = (type_name(base) for base in cls.__mro__ if base.__module__.partition(".")[0] == root)
                existing = next((self._bases[base] for base in bases if base in self._bases), name)
            if existing != name:
                raise InvalidArgument(f"the type {full_name(cls)} already has the codec {existing!r}")
            self._own = {**self._own, name: (cls, codec)}
            self._by_type = {}

    def for_value(self, value: Any, *, allow_pickle: AllowPickle = True) -> AnyCodec:
        """Return the codec for ``value``'s type, or the pickle codec if there is none and pickling is allowed.

        Raises:
            UnsupportedType: no codec supports the type, and pickling is not allowed.
        """
        cls, cache = type(value), self._by_type
        codec = cache.get(cls)
        if codec is None:
            codec = self._find(cls)
            cache[cls] = codec  # into the cache from before the search: codecs may have been added meanwhile
        if codec.name == PICKLE_CODEC and not allow_pickle:
            raise UnsupportedType(
                f"no codec supports a value of type {full_name(cls)} and pickling is switched off: "
                "convert it to bytes, a NumPy array or an Arrow table, register a codec, or allow pickling "
                "(connect(allow_pickle=True), ENTREPOT_ALLOW_PICKLE=1)"
            )
        return codec

    def by_name(self, name: str) -> AnyCodec:
        """Return the codec with this registry name.

        Raises:
            VersionMismatch: no installed package provides it, and none of that name was registered.
            UnsupportedType: the codec needs a package that is not installed.
        """
        codec = self._own[name][1] if name in self._own else self._instances.get(name)
        if codec is not None:
            return codec
        spec = self._specs.get(name)
        for load in (self._load_companion, self._load_entry_points):
            if spec is None:
                load()
                spec = self._specs.get(name)
        if spec is None:
            raise VersionMismatch(
                f"no codec named {name!r} is installed here: install the package (or the newer version) that wrote it, "
                "or, if it is registered by entrepot_io.register or @entrepot.codec, import the module that does so "
                "before reading"
            )
        module_name, _, class_name = spec.target.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UnsupportedType(f"the codec {name!r} needs a package that is not installed here: {error}") from error
        if name in self._own:  # the decorator, in that module
            return self._own[name][1]
        instance: AnyCodec = getattr(module, class_name)()
        return self._instances.setdefault(name, instance)

    def import_loaded(self) -> None:
        """Import the codecs for all libraries that this process has imported, so that its first value need not wait.

        Those of other packages, which take long to find, are left out.
        """
        self._load_companion()
        for name, spec in self._specs.items():
            roots = {kind.partition(":")[0].partition(".")[0] for kind in (*spec.types, *spec.base_types)}
            if not roots.isdisjoint(sys.modules):
                with suppress(UnsupportedType):  # reported for the first value that needs it
                    self.by_name(name)

    def names(self) -> list[str]:
        """Return all registry names, sorted."""
        self._load_entry_points()
        return sorted({*self._specs, *self._own})

    def _find(self, cls: type) -> AnyCodec:
        for of, codec in self._own.values():
            if of is cls:
                return codec
        name = self._exact.get(type_name(cls))
        # Searching for other packages' codecs takes about 50 ms; well-known types must not pay for it.
        for load in (self._load_companion, self._load_entry_points):
            if name is None:
                load()
                name = self._exact.get(type_name(cls))
        if name is None:
            for base in cls.__mro__:
                name = self._bases.get(type_name(base))
                if name is not None:
                    break
        return self.by_name(name or PICKLE_CODEC)

    def _load_companion(self) -> None:
        if self._companion_pending:
            self.register(companion_specs())
            self._companion_pending = False

    def _load_entry_points(self) -> None:
        if self._entry_points_pending:
            self.register(entry_point_specs())
            with self._lock:
                self._entry_points_pending = False


def full_name(cls: type) -> str:
    """Return a type's name as messages write it."""
    return f"{cls.__module__}.{cls.__qualname__}"
