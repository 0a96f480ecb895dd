"""The file system: fsspec's interface, over sessions, names and objects."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path, tokenize

from entrepot_io.filesystem import sealing
from entrepot_io.filesystem.os_errors import not_found, not_permitted, os_errors
from entrepot_io.filesystem.output import CompressedWriter
from entrepot_io.filesystem.paths import PROTOCOL, Location, strip
from entrepot_io.filesystem.reader import ObjectReader
from entrepot_io.filesystem.sessions import Sessions
from entrepot_io.filesystem.text import TextWriter
from entrepot_io.filesystem.tree import Entry, Tree, file_entry, folder_entry
from entrepot_io.filesystem.writer import ObjectWriter
from entrepot_io.sessions import parse_ttl

if TYPE_CHECKING:
    from entrepot import ObjectInfo

_TEXT_OPTIONS = ("encoding", "errors", "newline")


class EntrepotFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The named objects of a store as files; see docs/filesystem.md. Thread-safe; works after ``fork``; pickled by its
    options.

    Args:
        address: of the store, ``unix:///path``; default: as ``entrepot.connect`` finds it.
        scope, session: what ``current`` at the start of a path stands for; default: as ``entrepot.connect`` finds them.
        session_ttl: seconds, or text such as ``"12h"``, that sessions live after their last use, if this file system
            writes to them; default: 24 hours for new ones.
        decode: store what is written to ``NAME.arrow``, ``.feather``, ``.parquet``, ``.csv`` or ``.npy`` as a table or
            an array called ``NAME``, instead of the bytes.
        storage_options: fsspec's own.

    Raises:
        InvalidArgument: a malformed time to live.
    """

    protocol = PROTOCOL
    root_marker = ""

    def __init__(
        self,
        address: str | None = None,
        scope: str | None = None,
        session: str | None = None,
        session_ttl: float | str | None = None,
        decode: bool = False,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        self._sessions = Sessions(address, scope, session, parse_ttl(session_ttl))
        self._tree = Tree(self._sessions)
        self._decode = decode

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        return strip(stringify_path(path))

    @property
    def fsid(self) -> str:
        """Identifies the store."""
        return f"{PROTOCOL}-{self._sessions.any_store().address}"

    # --- looking

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return a file's or a directory's metadata.

        Of a file: ``name``, ``size``, ``type``, ``created`` and ``mtime`` (seconds since 1970), ``id``, ``generation``,
        and ``object_type``.
        """
        location = self._locate(path)
        with os_errors(location.path):
            file = self._tree.find(location)
            if file is not None:
                return self._tree.entry(file, location.path)
            if self._tree.is_folder(location):
                return folder_entry(location.path)
        raise self._tree.not_found(location)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether there is a file or a directory."""
        location = self._locate(path)
        with os_errors(location.path):
            return self._tree.find(location) is not None or self._tree.is_folder(location)

    def isfile(self, path: str) -> bool:
        """Return whether there is a file."""
        location = self._locate(path)
        with os_errors(location.path):
            return self._tree.find(location) is not None

    def isdir(self, path: str) -> bool:
        """Return whether there is a directory, and no file of the same name."""
        location = self._locate(path)
        with os_errors(location.path):
            return self._tree.find(location) is None and self._tree.is_folder(location)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a directory, or one file. Formats in which a table can also be read are not listed."""
        location = self._locate(path)
        with os_errors(location.path):
            entries = self._tree.entries(location)
            if not entries and (file := self._tree.find(location)) is not None:
                entries = [self._tree.entry(file, location.path)]
            if not entries and not self._tree.is_folder(location):
                raise self._tree.not_found(location)
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Return all files below a directory. Within a session, this takes one listing, whatever the directories."""
        location = self._locate(path)
        with os_errors(location.path):
            below = None if withdirs or maxdepth is not None else self._tree.descendants(location)
        if not below:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        return below if detail else list(below)

    def created(self, path: str) -> datetime:
        """Return when the file's present content was written."""
        return datetime.fromtimestamp(self._file_info(path).created, timezone.utc)

    def modified(self, path: str) -> datetime:
        """The same as :meth:`created`: content does not change, it is replaced."""
        return self.created(path)

    def ukey(self, path: str) -> str:
        """Return text that changes whenever the content is replaced."""
        info = self._file_info(path)
        return str(tokenize(self._sessions.any_store().instance_id, str(info.id), info.generation))

    def checksum(self, path: str) -> int:
        """Return a number that changes whenever the content is replaced."""
        return int(self.ukey(path), 16)

    # --- reading

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return a file's bytes, or some of them; negative positions count from its end."""
        return bytes(self.view(path)[start:end])

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Return ranges of files; of each file, all are from the same content.

        Args:
            paths: one per range.
            starts, ends: one per range, or one for all.
            max_gap: ignored: nothing is gained by reading ranges together.
            on_error: ``"return"`` puts an error in the place of its range, anything else raises it.
        """
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        views: dict[str, memoryview | OSError] = {}
        for path in dict.fromkeys(paths):
            try:
                views[path] = self.view(path)
            except OSError as error:
                if on_error != "return":
                    raise
                views[path] = error
        return [
            view if isinstance(view := views[path], OSError) else bytes(view[start:end])
            for path, start, end in zip(paths, starts, ends, strict=True)
        ]

    def view(self, path: str) -> memoryview:
        """Return a file's bytes without a copy, if it is stored as bytes. They stay as they are whatever happens to the
        file."""
        return self._view(path)[1]

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

        What is written becomes visible when the file is closed; after an exception in its ``with`` block, never.
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
        **kwargs: Any,
    ) -> ObjectReader | ObjectWriter:
        if mode == "rb":
            entry, view = self._view(path)
            return ObjectReader(self, entry["name"], entry, view)
        if mode not in ("wb", "xb", "ab"):
            raise ValueError(f"mode {mode!r} is not supported: objects are read (r), or written as a whole (w, x, a)")
        location = self._tree.locate_target(self._strip_protocol(path))
        start = self.view(path) if mode == "ab" and self.isfile(path) else None
        with os_errors(location.path):
            store = self._tree.open_session(location, create=True)
            if mode == "xb" and sealing.resolved(store, location.name) is not None:
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
        )

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file's bytes; with ``mode="create"`` only if there is no such file."""
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as file:
            file.write(value)

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
            target = self._tree.locate_target(self._strip_protocol(path2))
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
            FileExistsError: there is such a file or directory.
        """
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "there is such a file or directory", self._strip_protocol(path))
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
        """Remove a session without objects. Other directories vanish with their last file.

        Raises:
            OSError: the directory is not empty.
            FileNotFoundError: there is none.
        """
        location = self._locate(path)
        with os_errors(location.path):
            if not self._tree.is_folder(location):
                raise not_found(location.path, "a directory vanishes with its last file")
            if location.name or location.scope is None or location.session is None:
                removed = False
            else:
                removed = self._sessions.remove_if_empty(location.scope, location.session)
        if not removed:
            raise OSError(errno.ENOTEMPTY, "the directory is not empty: delete its files with rm", location.path)

    # --- deleting

    def rm_file(self, path: str) -> None:
        """Delete a file. Whoever has it open can go on reading it."""
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

    # --- helpers

    def _locate(self, path: Any) -> Location:
        return self._tree.locate(self._strip_protocol(path))

    def _file_info(self, path: str) -> ObjectInfo:
        location = self._locate(path)
        with os_errors(location.path):
            return self._tree.find_existing(location, "ask for a file in it").info

    def _view(self, path: str) -> tuple[Entry, memoryview]:
        location = self._locate(path)
        with os_errors(location.path):
            file = self._tree.find_existing(location, "list it with ls")
            view = self._tree.view(file, location.path)
            return file_entry(location.path, file.info, view.nbytes), view
