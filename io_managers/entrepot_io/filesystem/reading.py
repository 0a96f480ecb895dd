"""The read-only half of the file system: listing, status and reading."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path, tokenize

from entrepot_io.filesystem.os_errors import os_errors
from entrepot_io.filesystem.paths import PROTOCOL, Location, strip
from entrepot_io.filesystem.sessions import Sessions
from entrepot_io.filesystem.tree import Entry, Tree, file_entry, folder_entry

if TYPE_CHECKING:
    from entrepot import ObjectInfo

_ROOTED = f"{PROTOCOL}:///"


class ReadingFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The methods of the file system that change nothing.

    Args:
        sessions: the sessions of its store.
        storage_options: fsspec's own.
    """

    protocol = PROTOCOL
    root_marker = ""

    def __init__(self, sessions: Sessions, **storage_options: Any) -> None:
        super().__init__(**storage_options)
        self._sessions = sessions
        self._tree = Tree(sessions)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        # Kedro's datasets take the first part after two slashes for a host, and drop it, so PartitionedDataset has to
        # get a path with which it can build a URL with three.
        text = stringify_path(path)
        stripped = strip(text)
        return f"/{stripped}" if stripped and text.startswith(_ROOTED) else stripped

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
        """Return all files below a directory. Within a session, this takes one listing, whatever the directories.

        The paths begin with a slash if a URL with three of them is given.
        """
        location = self._locate(path)
        with os_errors(location.path):
            below = None if withdirs or maxdepth is not None else self._tree.descendants(location)
        if not below:
            listed: Any = super().find(location.path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
            below = cast("dict[str, Entry]", listed)
        if stringify_path(path).startswith(_ROOTED):
            below = {f"/{name}": entry | {"name": f"/{name}"} for name, entry in below.items()}
        return below if detail else list(below)

    def walk(self, path: str, maxdepth: int | None = None, *arguments: Any, **kwargs: Any) -> Any:
        """As fsspec's; the paths are those that :meth:`ls` returns."""
        return super().walk(strip(stringify_path(path)), maxdepth, *arguments, **kwargs)

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """As fsspec's; the paths are those that :meth:`ls` returns."""
        return super().glob(stringify_path(path).removeprefix(f"{PROTOCOL}:").lstrip("/"), maxdepth, **kwargs)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """As fsspec's; the paths are those that :meth:`ls` returns."""
        plain = path if isinstance(path, list) else strip(stringify_path(path))
        return super().cat(plain, recursive, on_error, **kwargs)

    def expand_path(self, path: Any, *arguments: Any, **kwargs: Any) -> Any:
        """As fsspec's; the paths are those that :meth:`ls` returns."""
        paths = [strip(stringify_path(each)) for each in (path if isinstance(path, list) else [path])]
        return super().expand_path(paths, *arguments, **kwargs)

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

    # --- helpers

    def _locate(self, path: Any) -> Location:
        return self._tree.locate(strip(stringify_path(path)))

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
