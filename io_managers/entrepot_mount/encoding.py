"""The file that an object is in a format."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from entrepot_io.filesystem.contents import stored_bytes

from entrepot_mount.content import Content, arrow_file, npy_file
from entrepot_mount.view_cache import ViewKey

if TYPE_CHECKING:
    from entrepot_io.filesystem.lookup import File

    from entrepot_mount.view_cache import ViewCache

_IN_PLACE = {
    (".arrow", "arrow.table"): arrow_file,
    (".arrow", "arrow.record_batch"): arrow_file,
    (".feather", "arrow.table"): arrow_file,
    (".feather", "arrow.record_batch"): arrow_file,
    (".npy", "numpy.ndarray"): npy_file,
}


def content_of(file: File, cache: ViewCache, path: str) -> Content:
    """The bytes of a file.

    Arrow tables as ``.arrow`` and arrays as ``.npy`` are not encoded: the file consists of a few headers and of the
    object's own memory. Everything else is encoded once, into the cache.

    Args:
        file: what to read, as it was found.
        cache: of encoded files.
        path: for messages.

    Raises:
        OSError: ``ESTALE``: the object was replaced since it was found. ``EINVAL``: the format cannot hold it.
        ObjectNotFound, ObjectLost: it is gone.
        StoreUnavailable: the store cannot be reached.
    """
    if file.format is None:
        view = stored_bytes(file.store, file.info, path)
        _check_generation(file, file.store.generation_of(file.info.id), path)
        return Content([view])
    in_place = _IN_PLACE.get((file.format.suffix, file.info.type))
    if in_place is not None:
        content: Content | None = in_place(_value(file, path))
        if content is not None:
            return content
    key = ViewKey(file.store.instance_id, file.info.id, file.info.generation, file.format.suffix)
    return Content([cache.get(key, lambda: _encoded(file, path))])


def _value(file: File, path: str) -> Any:
    value, generation = file.store.get_versioned(file.info.id)
    _check_generation(file, generation, path)
    return value


def _check_generation(file: File, generation: int, path: str) -> None:
    if generation != file.info.generation:
        raise OSError(errno.ESTALE, "the object was replaced: look it up again", path)


def _encoded(file: File, path: str) -> memoryview:
    assert file.format is not None
    value = _value(file, path)
    try:
        return memoryview(file.format.encode(value)).cast("B").toreadonly()
    except (EntrepotError, ImportError) as error:
        raise OSError(errno.EINVAL, f"the {file.info.type} cannot be read as {file.format.suffix}: {error}") from error
    except Exception as error:  # each library has errors of its own
        raise OSError(
            errno.EINVAL,
            f"the {file.info.type} cannot be written as {file.format.suffix} ({error}): use another format",
            path,
        ) from error
