"""Changes of the session: storing what was written, deleting, renaming."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError
from entrepot_io.filesystem import lookup, sealing
from entrepot_io.filesystem.contents import decoded
from entrepot_io.filesystem.formats import split
from entrepot_io.filesystem.paths import is_regular

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.filesystem.lookup import File

_log = logging.getLogger("entrepot.mount")
_WAIT_SECONDS = 5.0  # for memory, while a program waits for its close()


def store_file(store: Store, path: str, data: memoryview, *, decode: bool = True) -> None:
    """Store a file: as the table or array that it holds, if its name has the suffix of a format; else as bytes.

    What the format's library cannot decode is kept as bytes, under the whole name: programs close files that are not
    complete yet and open them again, and not every HDF5 file is a table or an array.

    Args:
        store: the session.
        path: the file's.
        data: its bytes.
        decode: whether tables and arrays are decoded at all.

    Raises:
        OSError: ``EINVAL``: no object can have this name.
        StoreFull: it does not fit.
    """
    if not is_regular(path):
        raise OSError(errno.EINVAL, "no object can have this name", path)
    stem, wanted = split(path) if decode and data.nbytes else (path, None)
    value = None
    if wanted is not None:
        try:
            value = decoded(data, wanted, path)  # type: ignore[arg-type]
        except (EntrepotError, OSError) as error:
            _log.warning("%r is kept as bytes: %s", path, error)
    if value is not None:
        sealing.put_value(store, stem, value)
        if sealing.resolved(store, path) is not None:  # bytes of this very name would hide the table
            delete(store, path)
    elif data.nbytes <= raw_objects.SMALL_BYTES or store.durable is not None:
        sealing.put_value(store, path, bytes(data))
    else:
        with raw_objects.RawObjectWriter(store, [data.nbytes], wait_seconds=_WAIT_SECONDS) as writer:
            writer.buffers[0][:] = data
            sealing.put_filled(store, path, writer)


def delete(store: Store, name: str) -> None:
    """Unbind a name, and delete the object if it has no other. Readers that have it open can continue.

    Raises:
        ObjectNotFound: the name is free.
    """
    oid = store.resolve(name)
    if len(store.info(oid).names) > 1:
        store.unset_name(name)
    else:
        store.delete(oid)


def delete_file(store: Store, file: File, path: str) -> None:
    """Delete what a file shows: with one format of a table, the table.

    Raises:
        ObjectNotFound: it is gone.
    """
    delete(store, path if file.format is None else path.removesuffix(file.format.suffix))


def rename_file(store: Store, file: File, old: str, new: str) -> bool:
    """Rename the object that a file shows, if that is enough; return whether it is.

    It is not if only one of the names is that of a format: the file's bytes have to be stored anew then. Of two,
    the table is what is renamed, whatever the suffixes.

    Raises:
        ObjectNotFound: it is gone.
        InvalidArgument: no object can have the new name.
        OSError: ``EINVAL``: the object would not be readable under the new name.
    """
    stem, wanted = split(new)
    if file.format is None:
        if wanted is not None and file.info.nbytes:
            return False
        sealing.rename(store, old, new, file.info.id)
        return True
    if wanted is None:
        return False
    old_stem = old.removesuffix(file.format.suffix)
    if stem == old_stem or lookup.format_of(file.info, wanted.suffix) is None:
        raise OSError(errno.EINVAL, f"{old!r} is the {file.info.type} {old_stem!r}, which is not renamed so", new)
    sealing.rename(store, old_stem, stem, file.info.id)
    if sealing.resolved(store, new) is not None:
        delete(store, new)
    return True


def rename_folder(store: Store, old: str, new: str) -> None:
    """Rename everything below a folder, one name after the other.

    Raises:
        InvalidArgument: a name would become too long; those before it are renamed.
    """
    for rest, info in list(lookup.names_below(store, old)):
        sealing.rename(store, f"{old}/{rest}", f"{new}/{rest}", info.id)
