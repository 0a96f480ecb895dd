"""Codecs of the user's own: ``entrepot_io.register`` and the decorator ``@entrepot.codec``.

    @entrepot.codec(Points, name="geo.Points", version=2)
    class PointsCodec:
        def encode(self, points):
            return {"unit": points.unit, "xy": points.xy}  # anything that can be put: here, an array that get maps

        def decode(self, content):
            return Points(content["xy"], unit=content["unit"])

        older = {1: lambda content: Points(content, unit="m")}  # what version 1 wrote, read by the code of today

A registration holds for this process: every process that puts or gets such values imports the module that makes it. A
package that names its codec through the entry-point group ``entrepot.codecs``, too, saves its users that import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from entrepot.codec import Codec, Decoder, Encoder, Node, default_registry
from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch

MAX_NAME_CHARACTERS = 200

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
AnyClass = TypeVar("AnyClass", bound=type)


class FunctionCodec(Codec):
    """A codec made of two functions. No params; the child is what ``encode`` returned, stored by its own codec."""

    def __init__(self, name: str, version: int, encode: Encode, decode: Decode, older: Mapping[int, Decode]) -> None:
        self.name = name
        self.version = version
        self._encode = encode
        self._decoders = {**older, version: decode}

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(self.name, self.version, children=[encoder.encode(self._encode(value))])

    def decode(self, node: Node, decoder: Decoder) -> Any:
        if len(node.children) != 1:
            raise CorruptData(f"a {self.name} node has {len(node.children)} children, expected 1")
        decode = self._decoders.get(node.version)
        if decode is None:
            raise VersionMismatch(
                f"the object was written by version {node.version} of the codec {self.name!r}; the one registered here "
                f"is version {self.version} and reads no such content: register it with older={{{node.version}: ...}}, "
                "a function that decodes what that version wrote"
            )
        return decode(decoder.decode(node.children[0]))


def register(
    kind: type,
    encode: Encode,
    decode: Decode,
    *,
    name: str | None = None,
    version: int = 1,
    older: Mapping[int, Decode] | None = None,
) -> None:
    """Register a codec for values of exactly this type, in this process.

    Args:
        kind: the type; subclasses need codecs of their own.
        encode: turns a value into one that can be put: arrays, tables, plain Python, or a container of them. Its arrays
            are not copied. Raising ``entrepot.UnsupportedType`` leaves a value to pickle, if that is allowed.
        decode: turns that back into a value. The arrays that it is given are views of the stored bytes.
        name: stored in each object, so it must never change; default: the type's full name.
        version: stored in each object; raise it when ``encode`` returns something else than before.
        older: how to decode what older versions wrote, by version.

    Raises:
        InvalidArgument: the name or the type already has another codec, or an argument is invalid.

    >>> import entrepot, entrepot_io
    >>> class Celsius:
    ...     def __init__(self, degrees): self.degrees = degrees
    >>> entrepot_io.register(Celsius, lambda value: value.degrees, Celsius, name="weather.Celsius", version=1)
    >>> store = entrepot.connect()
    >>> store.get(store.put(Celsius(21.5))).degrees
    21.5
    """
    _check_type(kind)
    functions = {"encode": encode, "decode": decode, **{f"older[{key}]": item for key, item in (older or {}).items()}}
    for argument, function in functions.items():
        if not callable(function):
            raise InvalidArgument(f"{argument} must be a function, but got {function!r}")
    number = _checked_version(version)
    for key in older or {}:
        if _checked_version(key) >= number:
            raise InvalidArgument(f"older[{key}] is not older than version {number}")
    codec = FunctionCodec(_checked_name(kind, name), number, encode, decode, older or {})
    module, qualname = getattr(decode, "__module__", ""), getattr(decode, "__qualname__", "")
    default_registry().add(kind, codec, f"{module}:{qualname}")


def codec(kind: type, *, name: str | None = None, version: int = 1) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that registers a codec for values of exactly this type; ``entrepot.codec`` is this.

    The class has methods ``encode(value)`` and ``decode(content)``, and perhaps ``older``, as :func:`register` takes
    them; or it is a subclass of :class:`entrepot.codec.Codec`, which has control of nodes and buffers.

    Args:
        kind, name, version: as for :func:`register`.

    Raises:
        InvalidArgument: as for :func:`register`.
    """
    _check_type(kind)
    number = _checked_version(version)

    def decorate(cls: AnyClass) -> AnyClass:
        target = f"{cls.__module__}:{cls.__qualname__}"
        make: Callable[[], Any] = cls
        if issubclass(cls, Codec):
            own: Codec = make()
            own.name, own.version = _checked_name(kind, name or getattr(own, "name", None)), number
            default_registry().add(kind, own, target)
            return cls
        if not all(callable(getattr(cls, method, None)) for method in ("encode", "decode")):
            raise InvalidArgument(f"the codec {cls.__qualname__} needs methods encode(value) and decode(content)")
        own_methods = make()
        older = getattr(cls, "older", {})
        if not isinstance(older, Mapping) or any(type(key) is not int or not 0 < key < number for key in older):
            raise InvalidArgument(f"{cls.__qualname__}.older must map versions before {number} to functions")
        made = FunctionCodec(_checked_name(kind, name), number, own_methods.encode, own_methods.decode, older)
        default_registry().add(kind, made, target)
        return cls

    return decorate


def _check_type(kind: Any) -> None:
    if not isinstance(kind, type):
        raise InvalidArgument(f"a codec is registered for a type, but got {kind!r}")


def _checked_name(kind: type, name: Any) -> str:
    chosen = f"{kind.__module__}.{kind.__qualname__}" if name is None else name
    if not isinstance(chosen, str) or not 0 < len(chosen) <= MAX_NAME_CHARACTERS or not chosen.isprintable():
        raise InvalidArgument(
            f"a codec's name must be printable text of at most {MAX_NAME_CHARACTERS} characters, but got {chosen!r}"
        )
    return chosen


def _checked_version(version: Any) -> int:
    if type(version) is not int or not 0 < version < 2**31:
        raise InvalidArgument(f"a codec's version must be a positive integer, but got {version!r}")
    return version
