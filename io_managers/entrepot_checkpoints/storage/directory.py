"""A directory on this machine, in S3, or anywhere fsspec has a driver for.

On local disks a file is written under a temporary name, synced, and renamed; object stores publish a file atomically
themselves. Either way a file is complete, or has the wrong length, which is detected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from entrepot.errors import CorruptData, InvalidArgument

from entrepot_checkpoints.storage import local_files
from entrepot_checkpoints.storage.errors import translate_errors

# Directories whose entries may be lost in a crash of the machine until
# ``StorageDirectory.sync_folders``, in the order in which to sync.
UnsyncedFolders = dict[str, None]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file.

    Attributes:
        name: its path relative to the listed directory.
        nbytes: its length.
        modified: seconds since 1970; None if the driver does not report it.
    """

    name: str
    nbytes: int
    modified: float | None


class StorageDirectory:
    """A directory, by URL. As thread-safe as its driver, which those of fsspec are.

    Attributes:
        url: for display, without a trailing slash.
        local: whether it is on this machine's own file system.
    """

    def __init__(self, fs: Any, path: str, url: str, local: bool) -> None:
        self._fs = fs
        self._path = path.rstrip("/")
        self.url = url
        self.local = local

    def __truediv__(self, name: str) -> StorageDirectory:
        return StorageDirectory(self._fs, f"{self._path}/{name}", f"{self.url}/{name}", self.local)

    @property
    def local_path(self) -> Path | None:
        """Where it is on this machine's own file system; None: elsewhere."""
        return Path(self._path or "/") if self.local else None

    def split(self) -> tuple[StorageDirectory, str]:
        """The parent directory, and the name of this one in it.

        Raises:
            InvalidArgument: it has no parent.
        """
        parent, _, name = self._path.rpartition("/")
        if not parent or not name or self.url.rstrip("/").rpartition("/")[2] != name or name in (".", ".."):
            raise InvalidArgument(
                f"a checkpoint's URL must name a folder within another one, such as /data/checkpoints/orders or "
                f"s3://bucket/checkpoints/orders, but got {self.url!r}"
            )
        return StorageDirectory(self._fs, parent, self.url.rpartition("/")[0], self.local), name

    # --- whole files

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of a file.

        Raises:
            FileNotFoundError: it does not exist.
            AccessDenied, StoreUnavailable: it cannot be read.
        """
        with translate_errors("read", f"{self.url}/{name}"):
            return bytes(self._fs.cat_file(f"{self._path}/{name}", start=start, end=end))

    def read_into(self, name: str, view: memoryview) -> None:
        """Fill ``view`` with a file of exactly that length.

        Raises:
            FileNotFoundError: it does not exist.
            CorruptData: it has another length.
            AccessDenied, StoreUnavailable: it cannot be read.
        """
        if not self.local:
            data = self.read(name)
            if len(data) != view.nbytes:
                raise CorruptData(f"{self.url}/{name} has {len(data)} bytes, expected {view.nbytes}")
            view[:] = data
            return
        with translate_errors("read", f"{self.url}/{name}"), open(f"{self._path}/{name}", "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            if length != view.nbytes:
                raise CorruptData(f"{self.url}/{name} has {length} bytes, expected {view.nbytes}")
            done = 0
            while done < length:
                count = file.readinto(view[done:])
                if not count:
                    raise CorruptData(f"{self.url}/{name} was truncated while it was being read")
                done += count

    def write(
        self, name: str, data: bytes | memoryview, *, sync: bool = True, unsynced: UnsyncedFolders | None = None
    ) -> None:
        """Write a file atomically, replacing one of the same name.

        Args:
            name: of the file.
            data: the whole content.
            sync: whether it must survive a crash of the machine, if on a local disk.
            unsynced: collects the directories whose entries, for the file and for directories created for it, may be
                lost in a crash before ``sync_folders``; for many files this is cheaper than a disk flush for each
                entry.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable, InvalidArgument: it cannot be written.
        """
        url = f"{self.url}/{name}"
        with translate_errors("write", url):
            try:
                if self.local:
                    path = f"{self._path}/{name}"
                    changed = dict.fromkeys(local_files.write_file(path, data, sync))
                    if sync:
                        changed[os.path.dirname(path)] = None
                    if unsynced is not None:
                        unsynced.update(changed)
                    elif sync:
                        self.sync_folders(changed)
                else:
                    self._fs.pipe_file(f"{self._path}/{name}", bytes(data))
            except FileNotFoundError as error:
                # A missing bucket, or a directory removed meanwhile; not "nothing to read".
                raise InvalidArgument(f"cannot write {url}: {error}: create the bucket or folder first") from error

    def mark_unsynced(self, name: str, unsynced: UnsyncedFolders, *, folders: int) -> None:
        """Add the directories of a file that another process may just have written. Does nothing except on local disks.

        Args:
            name: of the file.
            unsynced: collects them.
            folders: how many levels above the file that process may have created.
        """
        if self.local:
            path = f"{self._path}/{name}"
            for _ in range(folders):
                path = os.path.dirname(path)
                unsynced[path] = None

    def sync_folders(self, unsynced: UnsyncedFolders) -> None:
        """Sync these directories so that their entries survive a crash of the machine, and empty ``unsynced``.

        Raises:
            AccessDenied, StoreUnavailable: they cannot be synced.
        """
        for folder in list(unsynced):
            with translate_errors("sync", folder):
                local_files.sync_folder(folder)
        unsynced.clear()

    def size(self, name: str) -> int | None:
        """Length of a file; None if it does not exist."""
        with translate_errors("access", f"{self.url}/{name}"):
            try:
                if self.local:
                    return os.stat(f"{self._path}/{name}").st_size
                return int(self._fs.info(f"{self._path}/{name}")["size"])
            except FileNotFoundError:
                return None

    # --- directories

    def folders(self) -> list[str]:
        """Sorted names of the subdirectories; empty if this directory does not exist."""
        with translate_errors("list", self.url):
            try:
                entries = self._fs.ls(self._path, detail=True)
            except FileNotFoundError:
                return []
            return sorted(
                str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"
            )

    def files(self, below: str) -> list[FileEntry]:
        """All files below a subdirectory, at any depth; empty if it does not exist."""
        with translate_errors("list", f"{self.url}/{below}"):
            entries: dict[str, dict[str, Any]] = self._fs.find(f"{self._path}/{below}", detail=True)
            start = len(self._path) + 1
            return [
                FileEntry(_relative(name, self._path, start), int(entry["size"]), _modified(entry))
                for name, entry in entries.items()
                if entry["type"] == "file"
            ]

    def remove(self, name: str) -> bool:
        """Remove one file and return whether it existed."""
        with translate_errors("remove", f"{self.url}/{name}"):
            try:
                self._fs.rm_file(f"{self._path}/{name}")
            except FileNotFoundError:
                return False
            return True

    def remove_folder(self, name: str) -> None:
        """Remove a subdirectory recursively, if it exists."""
        with translate_errors("remove", f"{self.url}/{name}"):
            try:
                self._fs.rm(f"{self._path}/{name}", recursive=True)
            except FileNotFoundError:
                return

    def probe(self, name: str) -> bool:
        """Write, read and remove a small file; return whether what was read is what was written."""
        data = b"entrepot"
        self.write(name, data)
        same = self.read(name) == data
        self.remove(name)
        return same

    def missing_folders(self, name: str) -> list[str]:
        """The directories that writing a file would create, innermost first. None except on local disks: elsewhere,
        directories are not created, or not created by writing."""
        missing: list[str] = []
        folder = os.path.dirname(f"{self._path}/{name}")
        while self.local and not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        return missing

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Remove those of these local directories that are empty, in this order."""
        for folder in folders:
            with suppress(OSError):  # it was not created, or something is in it by now
                os.rmdir(folder)

    def open(self, name: str, mode: str) -> Any:
        """An fsspec file object, for libraries that read and write those."""
        if mode.startswith("w") and self.local:
            self.sync_folders(dict.fromkeys(local_files.make_folders(os.path.dirname(f"{self._path}/{name}"))))
        return self._fs.open(f"{self._path}/{name}", mode)

    def sync(self, name: str, file: Any) -> None:
        """Make what was written to a file from ``open`` survive a crash of the machine. Only on local disks.

        Args:
            name: as it was opened.
            file: as returned by ``open``, not yet closed.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable: it cannot be synced.
        """
        if not self.local:
            return
        with translate_errors("sync", f"{self.url}/{name}"):
            file.flush()
            os.fsync(file.fileno())
        unsynced: UnsyncedFolders = {}
        self.mark_unsynced(name, unsynced, folders=name.count("/") + 2)
        self.sync_folders(unsynced)


# A URL that lacks a slash would name a local folder: s3:/bucket is "s3:" in the working directory. A scheme has two
# letters at least, so C:/folder is a path. "file:/path" is a form of RFC 8089.
_SINGLE_SLASH_URL = re.compile(r"((?!file:)[A-Za-z][A-Za-z0-9+.-]+:)/(?!/)")


def open_directory(url: str, storage_options: Mapping[str, Any] | None = None) -> StorageDirectory:
    """Open the directory that a URL or a local path names.

    Args:
        url: ``s3://bucket/path``, ``file:///path``, ``/path``, ``memory://path``, or whatever else fsspec has a driver
            for.
        storage_options: for the driver: credentials, endpoints.

    Raises:
        InvalidArgument: not a string, an unknown scheme, or a driver (or fsspec itself) that is not installed.
        AccessDenied: the driver finds no credentials.
        StoreUnavailable: the driver fails otherwise.
    """
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str) or not url:
        raise InvalidArgument(f"a checkpoint's location must be a URL or a path, but got {url!r}")
    if scheme := _SINGLE_SLASH_URL.match(url):
        raise InvalidArgument(
            f"{url!r} has a single slash after {scheme[1]!r}: write {scheme[1]}//{url[scheme.end() :].lstrip('/')} for "
            f"a URL, or ./{url} for a folder of this name"
        )
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem
    except ImportError as error:
        raise InvalidArgument(
            f"checkpoints require fsspec, which is not installed: pip install 'entrepot[checkpoints]' ({error})"
        ) from error
    options = {"use_listings_cache": False, **(storage_options or {})}
    with translate_errors("open", url):
        try:
            fs, path = fsspec.url_to_fs(url, **options)
        except ImportError as error:
            raise InvalidArgument(f"no driver for {url!r} is installed: {error}") from error
        except ValueError as error:
            raise InvalidArgument(f"{url!r} is not a location that fsspec supports: {error}") from error
        except TypeError as error:
            raise InvalidArgument(f"the driver for {url!r} rejected storage_options: {error}") from error
    local = isinstance(fs, LocalFileSystem)
    display_url = url.rstrip("/") if "://" in url else str(path).rstrip("/")
    return StorageDirectory(fs, str(path), display_url, local)


def _relative(name: str, path: str, start: int) -> str:
    # Some drivers return names with a leading slash where the path has none, or the other way round.
    bare, prefix = name.lstrip("/"), path.lstrip("/")
    return bare[len(prefix) + 1 :] if bare.startswith(prefix + "/") else name[start:]


def _modified(entry: Mapping[str, Any]) -> float | None:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value: Any = entry.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, datetime):
            return value.timestamp()
    return None
