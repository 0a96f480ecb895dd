"""How objects are found and their parts read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from entrepot._codecs.blob import Blob
from entrepot._codecs.encoding import decode_object
from entrepot._codecs.plasma_objects import TREE
from entrepot.codec import unpack_tree
from entrepot.errors import ObjectNotFound, Timeout
from entrepot.ids import ObjectID as EntrepotID
from entrepot.plasma.errors import PlasmaSerializationError

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._store.store import Store

_WITHOUT_COPY = 0  # number of the copy mode


def find(raw: _core.Client, ids: Sequence[bytes], timeout_ms: int) -> list[_core.Object | None]:
    """Return the sealed objects with these IDs, pinned; None for those that are not sealed in time.

    Args:
        raw: the store.
        ids: binary IDs.
        timeout_ms: how long to wait for all of them, in milliseconds; 0: not at all; negative: without limit.

    Raises:
        ObjectLost: the bytes of one are gone: waiting would not bring them back.
        KeyboardInterrupt: by Ctrl-C, as from any other signal handler that raises.
    """
    ids = list(ids)
    if not ids:
        return []
    try:
        return list(raw.get_many(ids, 0.0))
    except ObjectNotFound:
        pass
    objects = [_find_now(raw, binary) for binary in ids]
    missing = [index for index, value in enumerate(objects) if value is None]
    if not missing or timeout_ms == 0:
        return objects
    absent = [ids[index] for index in missing]
    try:
        late: Sequence[_core.Object | None] = raw.get_many(absent, math.inf if timeout_ms < 0 else timeout_ms / 1000)
    except Timeout:
        late = [_find_now(raw, binary) for binary in absent]
    for index, value in zip(missing, late, strict=True):
        objects[index] = value
    return objects


def _find_now(raw: _core.Client, binary: bytes) -> _core.Object | None:
    try:
        return raw.get(binary, 0.0)
    except ObjectNotFound:
        return None


def value_of(sealed_object: _core.Object, store: Store) -> Any:
    """Return the value of an object that was not written through Plasma's interface, as ``Store.get`` does."""
    session = store._session  # pyright: ignore[reportPrivateUsage]
    return decode_object(
        sealed_object,
        "never",
        _WITHOUT_COPY,
        allow_pickle=session.allow_pickle,
        object_strings=session.object_strings,
        store=store,
    )


def parts_of(sealed_object: _core.Object, binary: bytes, store: Store) -> tuple[Any, Any]:
    """Return data and metadata of an object, each with the buffer protocol.

    Byte strings and blobs that were written through Entrepot's own interface have them, too.

    Raises:
        PlasmaSerializationError: an Entrepot value that is no range of bytes.
    """
    tree = sealed_object.tree
    if tree == TREE:
        return sealed_object.buffer(0, _WITHOUT_COPY), sealed_object.buffer(1, _WITHOUT_COPY)
    codec = unpack_tree(tree).codec
    if codec in ("entrepot.blob", "python.bytes", "python.bytearray", "plasma.Object"):
        value = value_of(sealed_object, store)
        if isinstance(value, Blob):
            return value.view, value.metadata
        if isinstance(value, (bytes, bytearray)):
            return value, b""
        return value.data, value.metadata
    raise PlasmaSerializationError(
        f"object {EntrepotID(binary)} is an Entrepot value of type {codec}, which has no data and metadata of its own: "
        "read it with get, or with entrepot.connect().get"
    )
