"""Codecs for Python's own byte types, and the pickle codec, the fallback for values that no other codec supports.

Plain data is in :mod:`entrepot._codecs.plain_data`.
"""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from entrepot._codecs.byte_storage import INLINE_BYTES, load_bytes, store_bytes
from entrepot._codecs.pickle_errors import not_found_error, rejected_error
from entrepot._codecs_builtin import _child_value  # pyright: ignore[reportPrivateUsage]
from entrepot.codec import PICKLE_CODEC, Codec, CodecSpec, Decoder, Encoder, NeverPickled, Node
from entrepot.errors import CorruptData, EntrepotError, UnsupportedType

# Pickled buffers below this size stay in the pickle stream.
OUT_OF_BAND_BYTES = 4096


def codec_specs() -> list[CodecSpec]:
    """Return the specs of the codecs of this module and of :mod:`entrepot._codecs.plain_data`."""
    module, plain = __name__, "entrepot._codecs.plain_data"
    data_types = (
        *(f"builtins:{kind}" for kind in ("NoneType", "bool", "int", "float", "complex", "str")),
        *(f"builtins:{kind}" for kind in ("list", "tuple", "dict", "set", "frozenset")),
        *(f"datetime:{kind}" for kind in ("date", "datetime", "time", "timedelta")),
        "decimal:Decimal",
        "uuid:UUID",
        "entrepot.ids:ObjectID",
    )
    return [
        CodecSpec("python.data", f"{plain}:DataCodec", data_types),
        CodecSpec("python.bytes", f"{module}:BytesCodec", ("builtins:bytes",)),
        CodecSpec("python.bytearray", f"{module}:BytearrayCodec", ("builtins:bytearray",)),
        CodecSpec("python.memoryview", f"{module}:MemoryviewCodec", ("builtins:memoryview",)),
        CodecSpec(PICKLE_CODEC, f"{module}:PickleCodec"),
    ]


class BytesCodec(Codec):
    """``bytes``: one buffer. Decoding copies, because ``bytes`` own their memory."""

    name = "python.bytes"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        node.params = store_bytes(encoder, node, value)
        return node

    def decode(self, node: Node, decoder: Decoder) -> Any:
        return self._to_owned(load_bytes(node, decoder, node.params))

    def _to_owned(self, data: Any) -> Any:
        return data if type(data) is bytes else bytes(data)


class BytearrayCodec(BytesCodec):
    """``bytearray``: as ``bytes``. Decoding returns a private copy, writable in every copy mode."""

    name = "python.bytearray"

    def _to_owned(self, data: Any) -> Any:
        return bytearray(data)


class MemoryviewCodec(Codec):
    """``memoryview``: a view of the stored bytes with the same format and shape, C-contiguous; get does not copy."""

    name = "python.memoryview"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        view: memoryview = value
        try:
            if view.nbytes == 0 and view.ndim != 1:
                raise ValueError("an empty multidimensional view cannot be restored")
            flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
            flat.cast(view.format)  # type: ignore[call-overload]
        except (ValueError, NotImplementedError) as error:
            raise UnsupportedType(
                f"a memoryview of format {view.format!r} and shape {view.shape} cannot be stored ({error}): "
                "put bytes or a NumPy array instead"
            ) from error
        node = Node(self.name, self.version)
        node.params = [view.format, list(view.shape or ()), store_bytes(encoder, node, flat)]
        return node

    def decode(self, node: Node, decoder: Decoder) -> Any:
        try:
            form, shape, inline = node.params
            data = load_bytes(node, decoder, inline)
            flat = memoryview(bytearray(data) if decoder.writable and inline is not None else data).cast("B")
            return flat.cast(form) if len(shape) == 1 and flat.nbytes == 0 else flat.cast(form, shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise CorruptData(f"a memoryview's format or shape does not match its bytes: {error}") from error


class _Pickler(pickle.Pickler):
    def __init__(self, sink: io.BytesIO, encoder: Encoder, node: Node) -> None:
        super().__init__(sink, protocol=5, buffer_callback=self._add_out_of_band)
        self._encoder = encoder
        self._node = node

    def _add_out_of_band(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: leave its bytes in the stream
            return True
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        self._node.buffers.append(self._encoder.add_buffer(raw))
        return False

    def reducer_override(self, value: Any) -> Any:
        encoder = self._encoder
        codec = encoder.registry.for_value(value)
        # Python's own types pickle well, and references between them are preserved only if pickle handles them.
        if codec.name.startswith("python."):
            return NotImplemented
        accepts = getattr(codec, "wanted_in_pickle", None)
        if accepts is not None and not accepts(value):
            return NotImplemented
        mark = encoder._mark()
        try:
            child = encoder.encode_with(codec, value)
        except NeverPickled:
            raise
        except UnsupportedType:
            encoder._rewind(mark)
            return NotImplemented
        self._node.children.append(child)
        return _child_value, (len(self._node.children) - 1,)


# Names that values of plain Python, and arrays within them, are reconstructed with. None of them runs code or gives
# access to anything else: no getattr, eval, partial.
_ALWAYS_PERMITTED = frozenset(
    {
        "copyreg._reconstructor",
        "copyreg.__newobj__",
        "copyreg.__newobj_ex__",
        *("collections.OrderedDict", "collections.defaultdict", "collections.deque", "collections.Counter"),
        *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *("decimal.Decimal", "fractions.Fraction", "uuid.UUID", "zoneinfo.ZoneInfo._unpickle"),
        *(
            f"{module}.{name}"  # Python 3.13 pickles them by the private module
            for module in ("pathlib", "pathlib._local")
            for name in ("Path", "PosixPath", "PurePath", "PurePosixPath")
        ),
        *(
            f"builtins.{kind.__name__}"
            for kind in (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, object, range, set, slice)
        ),
        *("builtins.str", "builtins.tuple"),
        *("numpy.ndarray", "numpy.dtype"),
        *(
            f"numpy.{core}.{name}"  # numpy 2 renamed its core
            for core in ("core", "_core")
            for name in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
        ),
        *(
            f"builtins.{name}"
            for name, kind in vars(builtins).items()
            if isinstance(kind, type) and issubclass(kind, BaseException)
        ),
    }
)


# Names that another version of Python or of a package has elsewhere; looked up only where they cannot be imported.
_NAT_MODULE = "pandas._libs.tslibs.nattype"  # pandas 3 renamed what restores NaT
_RENAMED = {
    (_NAT_MODULE, "__nat_unpickle"): (_NAT_MODULE, "_nat_unpickle"),
    (_NAT_MODULE, "_nat_unpickle"): (_NAT_MODULE, "__nat_unpickle"),
    **{
        ("pathlib._local", name): ("pathlib", name)  # Python 3.13
        for name in ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath")
    },
}
# Names in pickles of earlier versions, of what has moved since; modules of those paths offer nothing else. Permission
# for such a name is permission for what it stands for.
_FORMER_NAMES = frozenset(
    {
        "entrepot._connect.connect",
        *(f"entrepot._info.{name}" for name in ("ObjectInfo", "Receipt", "SessionInfo")),
        "entrepot._locality.LocalitySet",
        *(f"{module}.{name}" for module, name in _RENAMED),
    }
)


def _check_permitted(name: str, permits: Callable[[str], bool]) -> None:
    if name not in _ALWAYS_PERMITTED and not permits(name):
        raise _not_permitted_error(name)


def _not_permitted_error(name: str) -> UnsupportedType:
    return UnsupportedType(
        f"the object was pickled with {name}, which this process does not allow in pickled data: allow it "
        "if you trust the object's writer, or pass data (bytes, arrays, tables, plain Python) instead"
    )


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Any, buffers: list[Any], node: Node, decoder: Decoder) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.last_module = ""  # of the last name that the pickle asked for
        self._node = node
        self._decoder = decoder

    def find_class(self, module: str, name: str) -> Any:
        if module == _child_value.__module__ and name == _child_value.__name__:
            return self._load_child
        permits = self._decoder.allow_pickle
        if isinstance(permits, bool):
            return self._find(module, name)
        requested_name = f"{module}.{name}"
        _check_permitted(requested_name, permits)  # before anything is imported
        value = self._find(module, name)
        # A name may reach through a permitted module into another one: "mine.os.system".
        actual_name = f"{getattr(value, '__module__', None) or module}.{getattr(value, '__qualname__', None) or name}"
        if actual_name != requested_name and requested_name not in _FORMER_NAMES:
            _check_permitted(actual_name, permits)
        if isinstance(value, ModuleType):
            raise _not_permitted_error(requested_name)
        return value

    def _find(self, module: str, name: str) -> Any:
        self.last_module = module
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            renamed = _RENAMED.get((module, name))
            if renamed is not None:
                return super().find_class(*renamed)
            raise not_found_error(module, name, error) from error

    def _load_child(self, index: int) -> Any:
        return self._decoder.decode(self._node.children[index])


def load_pickle(stream: Any, buffers: Sequence[Any], decoder: Decoder) -> Any:
    """Unpickle what was not written by the codec below, as far as the decoder allows it.

    Raises:
        UnsupportedType: pickling is switched off here, or a class in the pickle is not allowed.
        CorruptData: the stream is damaged, or a class does not accept its state.
    """
    if not decoder.allow_pickle:
        raise UnsupportedType(
            "the object contains pickled data and pickling is switched off here; "
            "set ENTREPOT_ALLOW_PICKLE=1 if you trust its writer"
        )
    return _unpickle(stream, list(buffers), Node(PICKLE_CODEC, 1), decoder)


def _unpickle(stream: Any, buffers: list[Any], node: Node, decoder: Decoder) -> Any:
    unpickler = _Unpickler(stream, buffers, node, decoder)
    try:
        return unpickler.load()
    except (EntrepotError, MemoryError, Warning):  # a warning that the user's filters turned into an error
        raise
    except Exception as error:  # a damaged stream, or a class that does not accept its state
        raise rejected_error(stream, unpickler.last_module, error) from error


class PickleCodec(Codec):
    """Any picklable object: pickle protocol 5, buffers out of band, values with a codec of their own as children.

    A codec may define ``wanted_in_pickle(value) -> bool``; if it returns False, pickle handles that value itself.
    """

    name = PICKLE_CODEC

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        sink = io.BytesIO()
        try:
            _Pickler(sink, encoder, node).dump(value)
        except (EntrepotError, MemoryError):
            raise
        except Exception as error:  # anything that the __reduce__ of a part may raise
            kind = type(value)
            raise UnsupportedType(
                f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored: no codec supports it, and "
                f"pickling it failed ({type(error).__name__}: {error}). Return data instead (bytes, arrays, tables, "
                "plain Python), define its class and functions at the top level of a module, or register a codec"
            ) from error
        stream = sink.getbuffer()
        inline = encoder.add_inlined(bytes(stream)) if stream.nbytes <= INLINE_BYTES else None
        if inline is None:
            node.buffers.insert(0, encoder.add_buffer(stream))
        node.params = inline
        return node

    def decode(self, node: Node, decoder: Decoder) -> Any:
        data = load_bytes(node, decoder, node.params)
        outside = [decoder.buffer(index) for index in node.buffers[0 if node.params is not None else 1 :]]
        return _unpickle(data, outside, node, decoder)
