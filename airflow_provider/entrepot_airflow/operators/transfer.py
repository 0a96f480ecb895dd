"""Objects to files and back, through the file system ``entrepot://``, which converts."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot_io.filesystem.file_system import EntrepotFileSystem

BLOCK_BYTES = 4 << 20


def export_file(store: Store, name: str, url: str, storage_options: Mapping[str, Any] | None) -> int:
    """Write an object as a file; nothing is left of it if that fails.

    Args:
        store: the session that has it.
        name: of the object.
        url: the file; its extension says the format.
        storage_options: for fsspec's driver.

    Returns:
        the file's size in bytes.
    """
    from fsspec.core import url_to_fs

    target, path = url_to_fs(url, **(storage_options or {}))
    target.makedirs(posixpath.dirname(path), exist_ok=True)
    with (
        _files_of(store).open(_path_of(store, name, url), "rb") as source,
        target.transaction,
        target.open(path, "wb") as file,
    ):
        shutil.copyfileobj(source, file, BLOCK_BYTES)
        return int(file.tell())


def import_file(store: Store, name: str, url: str, storage_options: Mapping[str, Any] | None) -> int:
    """Read a file as an object; args and result as for :func:`export_file`."""
    from fsspec.core import url_to_fs

    origin, path = url_to_fs(url, **(storage_options or {}))
    with (
        origin.open(path, "rb") as source,
        _files_of(store, decode=True).open(_path_of(store, name, url), "wb") as file,
    ):
        shutil.copyfileobj(source, file, BLOCK_BYTES)
        return int(file.tell())


def _files_of(store: Store, *, decode: bool = False) -> EntrepotFileSystem:
    from entrepot_io.filesystem.file_system import EntrepotFileSystem

    return EntrepotFileSystem(
        address=store.address, scope=store.scope, session=store.session_name, decode=decode, skip_instance_cache=True
    )


def _path_of(store: Store, name: str, url: str) -> str:
    from entrepot_io.filesystem.paths import encode

    return f"{encode(store.scope)}/{encode(store.session_name)}/{name}{PurePosixPath(url).suffix}"
