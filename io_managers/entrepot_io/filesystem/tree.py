"""The whole tree: scopes, their sessions, and the files and directories in each."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from entrepot.errors import ObjectNotFound

from entrepot_io.filesystem import lookup
from entrepot_io.filesystem.contents import Conversions, stored_bytes
from entrepot_io.filesystem.lookup import File
from entrepot_io.filesystem.os_errors import is_a_directory, not_found, not_permitted
from entrepot_io.filesystem.paths import Location, encode, is_regular, parse

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store

    from entrepot_io.filesystem.sessions import Sessions

_PATHS = "a path is SCOPE/SESSION/NAME, or current/NAME; with Kedro, write three slashes, entrepot:///current/NAME"

Entry = dict[str, Any]
"""Metadata of a file or a directory, as fsspec has it."""


class Tree:
    """Finds what paths lead to. Thread-safe; works after ``fork``. Errors are those of the store, and of a file system.

    Args:
        sessions: the sessions of the store.

    Attributes:
        sessions: as given.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self._conversions = Conversions()

    def locate(self, path: str) -> Location:
        """What a path, without its protocol, means."""
        return parse(path, *self.sessions.defaults())

    def locate_target(self, path: str) -> Location:
        """The same for a file that is to be written.

        Raises:
            PermissionError: the path is an object's ID.
            IsADirectoryError: the path is that of a session, or of something above it.
            OSError: it could not be listed.
        """
        location = self.locate(path)
        if location.oid is not None:
            raise not_permitted(path, "objects cannot be changed by their ID: write to a name, SCOPE/SESSION/NAME")
        if not location.name:
            raise is_a_directory(path, _advice(location))
        if not is_regular(location.name):
            raise OSError(errno.EINVAL, "two slashes in a row: such a file could not be listed", path)
        return location

    def open_session(self, location: Location, *, create: bool = False) -> Store:
        """The session of a location; see :meth:`Sessions.open`.

        Raises:
            OSError: it is to be created, and its scope is empty, which would mean the default one.
        """
        if create and location.scope == "":
            raise OSError(errno.EINVAL, f"only a session can be empty ('-'), not a scope: {_PATHS}", location.path)
        return self.sessions.open(location.scope or "", location.session or "", create=create)

    # --- files

    def find(self, location: Location) -> File | None:
        """The file at a location; None: there is none."""
        if location.oid is not None:
            store = self.sessions.any_store()
            if not store.exists(location.oid):
                return None
            info = store.info(location.oid)
            wanted = lookup.format_of(info, location.suffix)
            return None if location.suffix and wanted is None else File(store, info, wanted)
        session = self._existing_session(location) if location.name else None
        return None if session is None else lookup.find_file(session, location.name)

    def find_existing(self, location: Location, advice: str) -> File:
        """The file at a location.

        Args:
            location: where.
            advice: what to do if it is a directory.

        Raises:
            IsADirectoryError: it is a directory.
            FileNotFoundError: there is nothing.
        """
        file = self.find(location)
        if file is not None:
            return file
        if self.is_folder(location):
            raise is_a_directory(location.path, advice)
        raise self.not_found(location)

    def view(self, file: File, path: str) -> memoryview:
        """A file's bytes."""
        if file.format is None:
            return stored_bytes(file.store, file.info, path)
        return self._conversions.converted(file.store, file.info, file.format, path)

    def entry(self, file: File, path: str) -> Entry:
        """A file's metadata, with the size of its bytes."""
        return file_entry(path, file.info, file.info.nbytes if file.format is None else self.view(file, path).nbytes)

    # --- directories

    def is_folder(self, location: Location) -> bool:
        """Whether a location is a directory: the root, a scope, a session, or a part of objects' names."""
        if location.scope is not None and location.session is not None:
            if not location.name:
                return self.sessions.exists(location.scope, location.session)
            store = self._existing_session(location)
            return store is not None and lookup.is_folder(store, location.name)
        if location.scope is not None:
            return any(info.scope == location.scope for info in self.sessions.all())
        return location.oid is None

    def entries(self, location: Location) -> list[Entry]:
        """What is in a directory; empty if the location is none."""
        if location.oid is not None:
            return []
        if location.scope is None:
            return [folder_entry(encode(scope)) for scope in sorted({info.scope for info in self.sessions.all()})]
        if location.session is None:
            sessions = sorted(info.session for info in self.sessions.all() if info.scope == location.scope)
            return [folder_entry(f"{location.path}/{encode(session)}") for session in sessions]
        store = self._existing_session(location)
        if store is None:
            return []
        children = lookup.children_of(store, location.name)
        return [
            *(folder_entry(f"{location.path}/{name}") for name in children.folders),
            *(file_entry(f"{location.path}/{name}", info, info.nbytes) for name, info in children.files.items()),
        ]

    def descendants(self, location: Location) -> dict[str, Entry] | None:
        """The files at all levels below a location in a session, by their paths; None: it is not in a session."""
        if location.scope is None or location.session is None:
            return None
        store = self._existing_session(location)
        if store is None:
            return {}
        below = lookup.names_below(store, location.name)
        paths = {f"{location.path}/{name}": info for name, info in below}
        return {path: file_entry(path, info, info.nbytes) for path, info in sorted(paths.items())}

    def not_found(self, location: Location) -> FileNotFoundError:
        """The error for a location at which there is nothing."""
        return not_found(location.path, _advice(location))

    def _existing_session(self, location: Location) -> Store | None:
        try:
            return self.open_session(location)
        except ObjectNotFound:
            return None


def folder_entry(path: str) -> Entry:
    """Metadata of a directory."""
    return {"name": path, "size": 0, "type": "directory"}


def file_entry(path: str, info: ObjectInfo, size: int) -> Entry:
    """Metadata of a file."""
    return {
        "name": path,
        "size": size,
        "type": "file",
        "created": info.created,
        "mtime": info.created,
        "id": str(info.id),
        "generation": info.generation,
        "object_type": info.type,
    }


def _advice(location: Location) -> str:
    if location.oid is not None:
        return "the store has no object with this ID in this format"
    if not location.name:
        return _PATHS
    return f"session {location.session!r} of scope {location.scope!r} has no object of this name"
