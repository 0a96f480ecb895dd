"""The interface of pyarrow's former module ``plasma``, over an Entrepot store: change one import.

    import entrepot.plasma as plasma      # was: import pyarrow.plasma as plasma
    client = plasma.connect("/tmp/store.sock")
    object_id = client.put([1, 2, 3])
    client.get(object_id)

It uses the store directly, without ``entrepot-plasma-store``, and shares objects with Plasma's own clients there and
with ``entrepot.connect()``. docs/plasma-python.md lists what is different.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot._codecs.plasma_objects import PlasmaObject
from entrepot.plasma.buffers import PlasmaBuffer
from entrepot.plasma.client import ObjectNotAvailable, PlasmaClient
from entrepot.plasma.connection import connect
from entrepot.plasma.errors import (
    PlasmaObjectExists,
    PlasmaObjectNotFound,
    PlasmaSerializationError,
    PlasmaStoreFull,
)
from entrepot.plasma.object_id import ObjectID
from entrepot.plasma.server import start_plasma_store

__all__ = [
    "ObjectID",
    "ObjectNotAvailable",
    "PlasmaBuffer",
    "PlasmaClient",
    "PlasmaObject",
    "PlasmaObjectExists",
    "PlasmaObjectNotFound",
    "PlasmaSerializationError",
    "PlasmaStoreFull",
    "connect",
    "start_plasma_store",
]

_TENSORFLOW_NAMES = ("TF_PLASMA_OP_PATH", "build_plasma_tensorflow_op", "load_plasma_tensorflow_op", "tf_plasma_op")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        hint = ""
        if name in _TENSORFLOW_NAMES:
            hint = ": the TensorFlow operator was compiled from pyarrow's sources; pass what get returns to TensorFlow"
        raise AttributeError(f"module 'entrepot.plasma' has no attribute {name!r}{hint}")
