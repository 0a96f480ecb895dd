"""Arrays of libraries that exchange them by DLPack, in main memory: JAX, and the array API's reference implementation.

A get gives them a private copy-on-write mapping in every copy mode: DLPack's consumers may write, and writing to shared
memory would kill the process. The kernel copies only pages that are written.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.numpy_arrays import decode_ndarray
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields

# By the root of a type's module: what has from_dlpack. The name comes from stored data, and so must be one of these.
_NAMESPACES = {"jax": "jax.numpy", "jaxlib": "jax.numpy", "array_api_strict": "array_api_strict"}
_CPU = 1  # kDLCPU
# Element types that NumPy lacks, viewed as integers of the same size.
_STAND_INS = {"bfloat16": np.dtype(np.uint16)}


class ArrayCodec(CheckedCodec):
    """Arrays of the libraries in ``_NAMESPACES``. params: [namespace, element type]; its only child is an array."""

    name = "dlpack.array"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        cls = type(value)
        namespace = _NAMESPACES[cls.__module__.partition(".")[0]]
        try:
            device = int(value.__dlpack_device__()[0])
        except Exception as error:  # an array on several devices; each library has errors of its own
            raise UnsupportedType(f"a {cls.__qualname__} that is not on one device needs pickling: {error}") from error
        if device != _CPU:
            raise UnsupportedType(
                f"a {cls.__qualname__} on a device of DLPack's type {device} needs pickling: move it to main memory"
            )
        element = str(value.dtype).rpartition(".")[2]
        try:
            array = np.asarray(value).view(_STAND_INS[element]) if element in _STAND_INS else np.from_dlpack(value)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            raise UnsupportedType(f"a {cls.__qualname__} of {element} needs pickling: {error}") from error
        return Node(self.name, self.version, [namespace, element], children=[encoder.encode(array)])

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        namespace, element = fields(node, 2)
        if namespace not in _NAMESPACES.values() or not isinstance(element, str):
            raise damaged(node, f"it describes an array of {element!r} of {namespace!r}")
        library: Any = import_module(namespace)
        array = decode_ndarray(child(node, 0), decoder.private())
        if element in _STAND_INS and array.dtype == _STAND_INS[element]:
            value = library.asarray(array.view(getattr(library, element)))
        else:
            value = library.from_dlpack(array)
        if str(value.dtype).rpartition(".")[2] != element or tuple(value.shape) != array.shape:
            raise damaged(node, f"{namespace} restored it as an array of {value.dtype}, expected {element}")
        return value
