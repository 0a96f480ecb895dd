"""A folder somewhere: on this machine, in S3, or wherever fsspec has a driver for.

On local disks a file is written beside its place, synced, and renamed into it; object stores make a file visible as a
whole by themselves. Either way what is there is whole, or has another length than it should, which is seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from entrepot.errors import CorruptData, InvalidArgument

from entrepot_io.checkpoints import local_files
from entrepot_io.checkpoints.failures import told_as_ours

# Folders whose entries do not outlive a crash of the machine before ``Place.settle``, in the order of their syncs.
Unsettled = dict[str, None]


@dataclass(frozen=True, slots=True)
class Found:
    """One file.

    Attributes:
        name: its path below the place that was listed.
        nbytes: its length.
        modified: seconds since 1970; None where the driver does not say.
    """

    name: str
    nbytes: int
    modified: float | None


class Place:
    """A folder, by URL. Thread-safe as far as the driver is, which those of fsspec are.

    Attributes:
        url: as people write it, without a slash at the end.
        local: whether it is on this machine's own file system.
    """

    def __init__(self, fs: Any, path: str, url: str, local: bool) -> None:
        self._fs = fs
        self._path = path.rstrip("/")
        self.url = url
        self.local = local

    def __truediv__(self, name: str) -> Place:
        return Place(self._fs, f"{self._path}/{name}", f"{self.url}/{name}", self.local)

    def split(self) -> tuple[Place, str]:
        """The folder above, and the name of this one in it.

        Raises:
            InvalidArgument: there is none above.
        """
        above, _, name = self._path.rpartition("/")
        if not above or not name or self.url.rstrip("/").rpartition("/")[2] != name or name in (".", ".."):
            raise InvalidArgument(
                f"a checkpoint's URL names a folder below another one, such as /data/checkpoints/orders or "
                f"s3://bucket/checkpoints/orders, but got {self.url!r}"
            )
        return Place(self._fs, above, self.url.rpartition("/")[0], self.local), name

    # --- whole files

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of a file.

        Raises:
            FileNotFoundError: it is not there.
            AccessDenied, StoreUnavailable: it cannot be read.
        """
        with told_as_ours("read", f"{self.url}/{name}"):
            return bytes(self._fs.cat_file(f"{self._path}/{name}", start=start, end=end))

    def read_into(self, name: str, view: memoryview) -> None:
        """Fill ``view`` with a file that is exactly as long.

        Raises:
            FileNotFoundError: it is not there.
            CorruptData: it has another length.
            AccessDenied, StoreUnavailable: it cannot be read.
        """
        if not self.local:
            data = self.read(name)
            if len(data) != view.nbytes:
                raise CorruptData(f"{self.url}/{name} has {len(data)} bytes and should have {view.nbytes}")
            view[:] = data
            return
        with told_as_ours("read", f"{self.url}/{name}"), open(f"{self._path}/{name}", "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            if length != view.nbytes:
                raise CorruptData(f"{self.url}/{name} has {length} bytes and should have {view.nbytes}")
            done = 0
            while done < length:
                got = file.readinto(view[done:])
                if not got:
                    raise CorruptData(f"{self.url}/{name} became shorter while it was read")
                done += got

    def write(
        self, name: str, data: bytes | memoryview, *, sync: bool = True, unsettled: Unsettled | None = None
    ) -> None:
        """Write a file, whole or not at all; another one of this name gives way.

        Args:
            name: of the file.
            data: all of it.
            sync: on a local disk, whether it has to outlive a crash of the machine.
            unsettled: gets the folders whose entries, for the file and for folders that were made for it, do not
                outlive a crash before ``settle``; many files cost less so than with a turn of the disk for each entry.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable, InvalidArgument: it cannot be written.
        """
        url = f"{self.url}/{name}"
        with told_as_ours("write", url):
            try:
                if self.local:
                    path = f"{self._path}/{name}"
                    changed = dict.fromkeys(local_files.write_file(path, data, sync))
                    if sync:
                        changed[os.path.dirname(path)] = None
                    if unsettled is not None:
                        unsettled.update(changed)
                    elif sync:
                        self.settle(changed)
                else:
                    self._fs.pipe_file(f"{self._path}/{name}", bytes(data))
            except FileNotFoundError as error:
                # A bucket that does not exist, or a folder that was removed meanwhile: not "nothing to read".
                raise InvalidArgument(f"cannot write {url}: {error}: make the bucket or folder first") from error

    def unsettle(self, name: str, unsettled: Unsettled, *, folders: int) -> None:
        """Add the folders of a file that another process may just have written. Elsewhere than on disks, nothing.

        Args:
            name: of the file.
            unsettled: gets them.
            folders: how many above the file that process may have made.
        """
        if self.local:
            path = f"{self._path}/{name}"
            for _ in range(folders):
                path = os.path.dirname(path)
                unsettled[path] = None

    def settle(self, unsettled: Unsettled) -> None:
        """Have the entries of these folders outlive a crash of the machine, and leave ``unsettled`` empty.

        Raises:
            AccessDenied, StoreUnavailable: they cannot be synced.
        """
        for folder in list(unsettled):
            with told_as_ours("sync", folder):
                local_files.sync_folder(folder)
        unsettled.clear()

    def size(self, name: str) -> int | None:
        """Length of a file; None if there is none."""
        with told_as_ours("look at", f"{self.url}/{name}"):
            try:
                if self.local:
                    return os.stat(f"{self._path}/{name}").st_size
                return int(self._fs.info(f"{self._path}/{name}")["size"])
            except FileNotFoundError:
                return None

    # --- folders

    def folders(self) -> list[str]:
        """Names of the folders in this one, sorted; none if it is not there."""
        with told_as_ours("list", self.url):
            try:
                found = self._fs.ls(self._path, detail=True)
            except FileNotFoundError:
                return []
            return sorted(
                str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"
            )

    def files(self, below: str) -> list[Found]:
        """The files below a folder of this one, at any depth; none if it is not there."""
        with told_as_ours("list", f"{self.url}/{below}"):
            found: dict[str, dict[str, Any]] = self._fs.find(f"{self._path}/{below}", detail=True)
            start = len(self._path) + 1
            return [
                Found(_relative(name, self._path, start), int(one["size"]), _modified(one))
                for name, one in found.items()
                if one["type"] == "file"
            ]

    def remove(self, name: str) -> bool:
        """Remove one file, and say whether it was there."""
        with told_as_ours("remove", f"{self.url}/{name}"):
            try:
                self._fs.rm_file(f"{self._path}/{name}")
            except FileNotFoundError:
                return False
            return True

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; nothing if it is not there."""
        with told_as_ours("remove", f"{self.url}/{name}"):
            try:
                self._fs.rm(f"{self._path}/{name}", recursive=True)
            except FileNotFoundError:
                return

    def open(self, name: str, mode: str) -> Any:
        """A file object of fsspec's, for libraries that read and write those."""
        if mode.startswith("w") and self.local:
            self.settle(dict.fromkeys(local_files.make_folders(os.path.dirname(f"{self._path}/{name}"))))
        return self._fs.open(f"{self._path}/{name}", mode)

    def sync(self, name: str, file: Any) -> None:
        """Have what was written to a file of ``open`` outlive a crash of the machine. Elsewhere than on disks, nothing.

        Args:
            name: as it was opened.
            file: what ``open`` gave, not closed yet.

        Raises:
            AccessDenied, StoreFull, StoreUnavailable: it cannot be synced.
        """
        if not self.local:
            return
        with told_as_ours("sync", f"{self.url}/{name}"):
            file.flush()
            os.fsync(file.fileno())
        unsettled: Unsettled = {}
        self.unsettle(name, unsettled, folders=name.count("/") + 2)
        self.settle(unsettled)


def open_place(url: str, storage_options: Mapping[str, Any] | None = None) -> Place:
    """The folder that a URL or a path of this machine means.

    Args:
        url: ``s3://bucket/path``, ``file:///path``, ``/path``, ``memory://path``, or what else fsspec has a driver for.
        storage_options: for the driver: credentials, endpoints.

    Raises:
        InvalidArgument: no text, an unknown scheme, or a driver (or fsspec itself) that is not installed.
        AccessDenied: the driver finds no credentials.
        StoreUnavailable: the driver fails otherwise.
    """
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str) or not url:
        raise InvalidArgument(f"a checkpoint's place is a URL or a path, but got {url!r}")
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem
    except ImportError as error:
        raise InvalidArgument(
            f"checkpoints go through fsspec, which is not installed: pip install 'entrepot[checkpoints]' ({error})"
        ) from error
    options = {"use_listings_cache": False, **(storage_options or {})}
    with told_as_ours("open", url):
        try:
            fs, path = fsspec.url_to_fs(url, **options)
        except ImportError as error:
            raise InvalidArgument(f"no driver for {url!r} is installed: {error}") from error
        except ValueError as error:
            raise InvalidArgument(f"{url!r} is not a place that fsspec knows: {error}") from error
        except TypeError as error:
            raise InvalidArgument(f"the driver of {url!r} refuses storage_options: {error}") from error
    local = isinstance(fs, LocalFileSystem)
    shown = url.rstrip("/") if "://" in url else str(path).rstrip("/")
    return Place(fs, str(path), shown, local)


def _relative(name: str, path: str, start: int) -> str:
    # Some drivers give names with a slash in front where the path has none, or the other way round.
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
