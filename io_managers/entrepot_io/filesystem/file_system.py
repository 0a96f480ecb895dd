"""The file system: fsspec's interface, over sessions, names and objects. Opening and changing files is here."""

from __future__ import annotations

import errno
import os
from typing import Any

from entrepot import raw_objects
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import stringify_path

from entrepot_io.filesystem import sealing
from entrepot_io.filesystem.os_errors import not_found, not_permitted, os_errors
from entrepot_io.filesystem.output import CompressedWriter
from entrepot_io.filesystem.paths import Location, strip
from entrepot_io.filesystem.reader import ObjectReader
from entrepot_io.filesystem.reading import ReadingFileSystem
from entrepot_io.filesystem.sessions import Sessions
from entrepot_io.filesystem.text import TextWriter
from entrepot_io.filesystem.writer import ObjectWriter
from entrepot_io.sessions import parse_ttl

_TEXT_OPTIONS = ("encoding", "errors", "newline")


class EntrepotFileSystem(ReadingFileSystem):
    """The named objects of a store as files; see docs/filesystem.md. Thread-safe; works after ``fork``; pickled by its
    options.

    Args:
        address: of the store, ``unix:///path``; default: as ``entrepot.connect`` finds it.
        scope, session: what ``current`` at the start of a path stands for; default: as ``entrepot.connect`` finds them.
        session_ttl: seconds, or text such as ``"12h"``, that sessions live after their last use, if this file system
            writes to them; default: 24 hours for new ones.
        decode: store what is written to ``NAME.arrow``, ``.feather``, ``.parquet``, ``.csv``, ``.orc``, ``.npy`` or
            ``.h5`` as a table or an array called ``NAME``, instead of the bytes.
        storage_options: fsspec's own.

    Raises:
        InvalidArgument: a malformed time to live.
    """

    def __init__(
        self,
        address: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        session_ttl: float | str | None = None,
        decode: bool = False,
        **storage_options: Any,
    ) -> None:
        super().__init__(Sessions(address, scope, session, parse_ttl(session_ttl)), **storage_options)
        self._decode = decode

    # --- writing

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file: ``r``, ``w``, ``x`` or ``a``, for text or with ``b`` for bytes.

        What is written becomes visible when the file is closed; after an exception in its ``with`` block, never. If the
        number of bytes is known, pass it as ``size``: they are then written straight into shared memory.
        """
        if "r" in mode or ("b" in mode and compression is None):
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        if "b" not in mode:
            text = {name: kwargs.pop(name) for name in _TEXT_OPTIONS if name in kwargs}
            binary = self.open(path, mode.replace("t", "") + "b", compression=compression, **kwargs)
            return TextWriter(binary, **text)
        target = self.open(path, mode, **kwargs)
        compress = compr[get_compression(self._strip_protocol(path), compression)]
        return target if compress is None else CompressedWriter(compress(target, mode="w"), target)

    def _open(  # type: ignore[override,unused-ignore]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        size: int | None = None,
        **kwargs: Any,
    ) -> ObjectReader | ObjectWriter:
        if mode == "rb":
            entry, view = self._view(path)
            return ObjectReader(self, entry["name"], entry, view)
        if mode not in ("wb", "xb", "ab"):
            raise ValueError(f"mode {mode!r} is not supported: objects are read (r), or written as a whole (w, x, a)")
        location = self._tree.locate_target(strip(stringify_path(path)))
        start = self.view(path) if mode == "ab" and self.isfile(path) else None
        with os_errors(location.path):
            store = self._tree.open_session(location, create=True)
            taken = sealing.resolved(store, location.name) is not None  # also refuses names that no object can have
            if mode == "xb" and taken:
                raise FileExistsError(errno.EEXIST, "the file exists: mode 'w' replaces it", location.path)
            return ObjectWriter(
                self,
                location.path,
                store,
                location.name,
                start=start,
                exclusive=mode == "xb",
                autocommit=autocommit,
                decode=self._decode,
                expected_size=size,
            )

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file's bytes; with ``mode="create"`` only if there is no such file."""
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as file:
            file.write(value)

    def put_file(self, lpath: Any, rpath: str, *args: Any, **kwargs: Any) -> None:
        """Copy a local file into the store, block by block."""
        if os.path.isfile(lpath):
            kwargs.setdefault("size", os.path.getsize(lpath))
        super().put_file(lpath, rpath, *args, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file. The copy shares the memory of large ones; a directory without files cannot be copied."""
        source = self._locate(path1)
        with os_errors(source.path):
            file = self._tree.find(source)
            if file is None:
                if self._tree.is_folder(source):
                    return
                raise self._tree.not_found(source)
            if file.format is not None:
                self.pipe_file(path2, self.view(path1))
                return
            if file.info.collection is not None:
                raise not_permitted(source.path, "a collection cannot be copied, as its members would have two owners")
            target = self._tree.locate_target(strip(stringify_path(path2)))
            into = self._tree.open_session(target, create=True)
            if into.durable is not None:
                sealing.put_value(into, target.name, file.store.get(file.info.id))
            else:
                sealing.put_copy(into, target.name, raw_objects.read(file.store, file.info.id))

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Move files. One file is renamed within its session: it keeps its ID, and nothing is copied.

        Moving something to where it is, however its path is written, does nothing.
        """
        if not isinstance(path1, list) and not isinstance(path2, list):
            source, target = self._locate(path1), self._locate(path2)
            if source.place == target.place and self.exists(source.path):
                return
            with os_errors(source.path):
                if not recursive and self._rename(source, target, str(path2)):
                    return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def _rename(self, source: Location, target: Location, text: str) -> bool:
        if not source.name or not target.name or source.place[:2] != target.place[:2]:
            return False
        if text.endswith("/") or self.isdir(target.path):
            return False
        file = self._tree.find(source)
        if file is None or file.format is not None:
            return False
        sealing.rename(file.store, source.name, target.name, file.info.id)
        return True

    # --- directories

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Create a session. Directories below it need not be created: they exist as long as they have files.

        Raises:
            FileExistsError: the file or directory already exists.
        """
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "the file or directory already exists", self._strip_protocol(path))
        self.makedirs(path, exist_ok=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """As :meth:`mkdir`."""
        if not exist_ok:
            return self.mkdir(path)
        location = self._locate(path)
        if location.scope is None:
            return None
        with os_errors(location.path):
            store = self._tree.open_session(location, create=True)
            if location.name and sealing.resolved(store, location.name) is not None:
                raise FileExistsError(errno.EEXIST, "this is a file", location.path)
        return None

    def rmdir(self, path: str) -> None:
        """Remove a session without objects. Other directories disappear with their last file.

        Raises:
            OSError: the directory is not empty.
            FileNotFoundError: there is none.
        """
        location = self._locate(path)
        with os_errors(location.path):
            if not self._tree.is_folder(location):
                raise not_found(location.path, "there is no such directory; one disappears with its last file")
            if location.name or location.scope is None or location.session is None:
                removed = False
            else:
                removed = self._sessions.remove_if_empty(location.scope, location.session)
        if not removed:
            raise OSError(errno.ENOTEMPTY, "the directory is not empty: delete its files with rm", location.path)

    # --- deleting

    def rm_file(self, path: str) -> None:
        """Delete a file. Readers that have it open can continue."""
        location = self._locate(path)
        with os_errors(location.path):
            file = self._tree.find_existing(location, "delete it with recursive=True")
            if file.format is not None:
                stem = location.path.removesuffix(file.format.suffix)
                raise not_permitted(location.path, f"this is the object {stem} in another format: delete {stem}")
            if location.name and len(file.info.names) > 1:
                file.store.unset_name(location.name)
            else:
                file.store.delete(file.info.id)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, and with ``recursive`` directories. Of a session, objects without a name remain.

        Raises:
            PermissionError: the path is the root.
        """
        if any(not self._strip_protocol(each) for each in (path if isinstance(path, list) else [path])):
            raise not_permitted("", "this would empty the whole store: delete one scope or session at a time")
        for each in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            try:
                self.rm_file(each)
            except IsADirectoryError:
                if not recursive:
                    raise
            except FileNotFoundError:  # a directory has vanished with its last file
                if not recursive:
                    raise
