"""The bytes of an object, as a file has them."""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, EntrepotError, ObjectLost, ObjectNotFound

from entrepot_io.filesystem.formats import BYTE_TYPES, Format, suffixes_of

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store

_MAX_CONVERTED_BYTES = 256 << 20
_Key = tuple[str, str, int, str]


def stored_bytes(store: Store, info: ObjectInfo, path: str) -> memoryview:
    """The bytes of an object that is bytes; in shared memory, except short ones. They stay valid when it is deleted.

    Raises:
        OSError: it is something else.
        ObjectNotFound, ObjectLost: it is gone.
    """
    if info.type not in BYTE_TYPES or info.collection is not None:
        raise OSError(errno.EINVAL, _advice(info), path)
    try:
        raw = raw_objects.read(store, info.id)
    except (ObjectNotFound, ObjectLost):
        if not store.recall(info.id):  # from the durable tier, if there is one
            raise
        raw = raw_objects.read(store, info.id)
    node = unpack_tree(raw.tree)
    if node.codec not in BYTE_TYPES:  # replaced since `info` was read
        raise CorruptData(f"object {info.id} was replaced by a value of type {node.codec}: open it again")
    if node.buffers:
        return raw.buffers[node.buffers[0]].cast("B").toreadonly()
    inline = node.params[2] if node.codec == "python.memoryview" else node.params
    if not isinstance(inline, bytes):
        raise CorruptData(f"object {info.id} of type {node.codec} has neither inline bytes nor a buffer")
    return memoryview(inline)


def _advice(info: ObjectInfo) -> str:
    kind = "a collection" if info.collection is not None else f"a value of type {info.type}"
    suffixes = [] if info.collection is not None else suffixes_of(info.type)
    if suffixes:
        return f"the object is {kind}, not bytes: add {', '.join(suffixes[:-1]) or suffixes[0]}" + (
            f" or {suffixes[-1]} to its path" if len(suffixes) > 1 else " to its path"
        )
    return f"the object is {kind}, which no file format here can hold: read it with entrepot.connect().get(...)"


def decoded(data: bytes, wanted: Format, path: str) -> Any:
    """The table or array that a file's bytes hold.

    Raises:
        OSError: they hold none.
    """
    try:
        return wanted.decode(data)
    except (EntrepotError, ImportError):
        raise
    except Exception as error:  # each library has errors of its own
        raise OSError(
            errno.EINVAL,
            f"the {len(data)} bytes cannot be read as {wanted.suffix} ({error}): write them without decode=True",
            path,
        ) from error


class Conversions:
    """Bytes made of tables and arrays, the last used ones, so that asking for a file's size does not convert twice.

    Thread-safe without a lock, which a forked child could find held: at worst, two threads convert the same table.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[_Key, memoryview] = OrderedDict()

    def converted(self, store: Store, info: ObjectInfo, wanted: Format, path: str) -> memoryview:
        """The bytes of a table or an array in a format.

        Raises:
            OSError: the format cannot represent the value.
            ObjectNotFound, ObjectLost: the object is gone.
        """
        key = (store.instance_id, str(info.id), info.generation, wanted.suffix)
        made = self._made.get(key)
        if made is None:
            value, generation = store.get_versioned(info.id)
            try:
                made = memoryview(wanted.encode(value)).cast("B").toreadonly()
            except (EntrepotError, ImportError):
                raise
            except Exception as error:  # each library has errors of its own
                raise OSError(
                    errno.EINVAL, f"the {info.type} cannot be written as {wanted.suffix} ({error}): use another", path
                ) from error
            self._remember((*key[:2], generation, key[3]), made)
        return made

    def _remember(self, key: _Key, made: memoryview) -> None:
        if made.nbytes > _MAX_CONVERTED_BYTES:
            return
        self._made[key] = made
        while sum(view.nbytes for view in list(self._made.values())) > _MAX_CONVERTED_BYTES:
            try:
                self._made.popitem(last=False)
            except KeyError:
                return
