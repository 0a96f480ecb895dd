"""Locations of files and the identity of their content: local paths, and URLs that fsspec knows.

An identity is taken without reading the file. Two reads that see the same identity may share one decoded table, so it
has to change whenever the content does.
"""

from __future__ import annotations

import glob
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, cast

from entrepot.errors import InvalidArgument

PathArgument = str | os.PathLike[str]

_PATTERN_CHARACTERS = frozenset("*?[")
_LOCAL_PREFIXES = ("file://", "local://")
# Two changes within one tick of the kernel's clock may leave the same timestamps; 10 ms at 100 Hz, the slowest setting.
_CLOCK_TICK_SECONDS = 0.02
_WHOLE_SECONDS = 2.0  # for timestamps without a fraction
# Fields of fsspec's info(), in lower case with underscores. Any of the first kind names a version of the content.
_VERSION_FIELDS = (
    *("etag", "e_tag", "md5hash", "md5", "content_md5", "digest", "crc32c", "checksum", "sha256"),
    *("versionid", "version_id", "generation"),
)
_TIME_FIELDS = ("mtime", "lastmodified", "last_modified", "updated", "modified", "timemodified")
_OTHER_FIELDS = ("size", "id")


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies the content of some files.

    Attributes:
        fields: compared as a whole.
        settled_at: Unix time from which on a further change is certain to change ``fields``; 0: at once.
    """

    fields: tuple[object, ...]
    settled_at: float = field(default=0.0, compare=False)

    def wait_settled(self) -> bool:
        """Wait until a further change would be noticed, two seconds at most; return whether there was a wait."""
        seconds = self.settled_at - time.time()
        if not 0 < seconds <= _WHOLE_SECONDS:  # longer: the clock that wrote the timestamps is not ours
            return False
        time.sleep(seconds)
        return True


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files that a path leads to.

    Attributes:
        location: the path in a form that does not depend on the process.
        target: what is decoded: the file, the directory, or the list of files.
        files: all files, in order.
    """

    location: str
    target: str | list[str]
    files: tuple[str, ...]


class Source(ABC):
    """The files of one path, directory, pattern or list, on one file system."""

    @abstractmethod
    def resolve(self) -> FileSet:
        """Find the files.

        Raises:
            FileNotFoundError: there are none.
        """

    @abstractmethod
    def identify(self, files: FileSet) -> Identity | None:
        """Return what identifies the content of the files now; None: the file system does not tell.

        Raises:
            FileNotFoundError: one of them is gone.
        """

    @abstractmethod
    def arrow_file_system(self) -> Any:
        """Return a ``pyarrow.fs.FileSystem`` to which the files' paths refer."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the kind of file system, for messages."""

    def open(self, path: str) -> Any:
        """Open one file for reading, as Arrow does."""
        return self.arrow_file_system().open_input_file(path)


class LocalSource(Source):
    """Files of this host, without fsspec.

    Args:
        paths: one path, directory or pattern, or several files.
        several: whether a list was given.
    """

    def __init__(self, paths: Sequence[str], several: bool) -> None:
        self._paths = [os.path.abspath(path) for path in paths]
        self._several = several

    @property
    def label(self) -> str:
        return "file"

    def resolve(self) -> FileSet:
        if self._several:
            return _list_of([os.path.realpath(path) for path in self._paths])
        (path,) = self._paths
        if _PATTERN_CHARACTERS & set(path) and not os.path.lexists(path):
            matches = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
            return _list_of([os.path.realpath(file) for file in matches], path)
        path = os.path.realpath(path)
        if os.path.isdir(path):
            return FileSet(path, path, _checked_files(path, _files_below(path)))
        return FileSet(path, path, (path,))

    def identify(self, files: FileSet) -> Identity | None:
        fields: list[object] = []
        newest = 0
        for path in files.files:
            status = os.stat(path)
            fields.append((path, *(getattr(status, name) for name in _STATUS_FIELDS)))
            newest = max(newest, status.st_ctime_ns)
        return Identity(tuple(fields), newest / 1e9 + _CLOCK_TICK_SECONDS)

    def arrow_file_system(self) -> Any:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem()


_STATUS_FIELDS = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")


class FsspecSource(Source):
    """Files at URLs, through fsspec.

    Args:
        urls: one URL of a file, directory or pattern, or of several files.
        several: whether a list was given.
        options: passed to fsspec's driver.

    Raises:
        InvalidArgument: fsspec or its driver is not installed, or no driver has this scheme.
    """

    def __init__(self, urls: Sequence[str], several: bool, options: Mapping[str, Any]) -> None:
        try:
            import fsspec.core
        except ModuleNotFoundError as error:
            raise InvalidArgument(f"reading {urls[0]} needs fsspec: pip install fsspec") from error
        try:
            opened = [fsspec.core.url_to_fs(url, **options) for url in urls]
        except (ValueError, ImportError) as error:
            raise InvalidArgument(f"fsspec cannot open {urls[0]}: {error}") from error
        self._fs: Any = opened[0][0]
        if any(fs != self._fs for fs, _ in opened):
            raise InvalidArgument(f"the files of a list must be on one file system, but got {urls!r}")
        self._paths: list[str] = [path for _, path in opened]
        self._several = several
        # Of a file in an archive, say, whose content may change without a trace in the file's own metadata.
        self._is_nested = any("::" in url for url in urls) or hasattr(self._fs, "fo")
        self._options = tuple(sorted((key, repr(value)) for key, value in options.items()))

    @property
    def label(self) -> str:
        protocol = self._fs.protocol
        return str(protocol if isinstance(protocol, str) else protocol[0])

    def resolve(self) -> FileSet:
        fs = self._fs
        if self._several:
            return self._located(_list_of(self._paths))
        (path,) = self._paths
        fs.invalidate_cache(path)
        characters = _PATTERN_CHARACTERS - {"?"} if self.label in ("http", "https") else _PATTERN_CHARACTERS
        if characters & set(path) and not fs.exists(path):
            return self._located(_list_of(sorted(fs.glob(path)), path))
        if fs.info(path)["type"] == "directory":  # not isdir(), for which HTTP's driver fetches the file
            files = [file for file in sorted(fs.find(path)) if not _is_hidden(file[len(path) :])]
            return self._located(FileSet(path, path, _checked_files(path, files)))
        return self._located(FileSet(path, path, (path,)))

    def _located(self, files: FileSet) -> FileSet:
        where = repr((self._fs.unstrip_protocol(""), self._options))  # the same path may exist at several endpoints
        return FileSet(f"{where} {files.location}", files.target, files.files)

    def identify(self, files: FileSet) -> Identity | None:
        if self._is_nested:
            return None
        fields: list[object] = []
        settled_at = 0.0
        for path in files.files:
            self._fs.invalidate_cache(path)
            identity = self._identify_file(path)
            if identity is None:
                return None
            fields.append((path, *identity.fields))
            settled_at = max(settled_at, identity.settled_at)
        return Identity(tuple(fields), settled_at)

    def _identify_file(self, path: str) -> Identity | None:
        info = {str(key).lower().replace("-", "_"): value for key, value in self._fs.info(path).items()}
        described = {key: info[key] for key in (*_VERSION_FIELDS, *_TIME_FIELDS) if info.get(key) not in (None, "")}
        if not described:
            with suppress(NotImplementedError, AttributeError):
                described["modified"] = self._fs.modified(path)
        has_version = any(key in described for key in _VERSION_FIELDS)
        if not described or not (has_version or info.get("size") is not None):
            return None
        described.update((key, info[key]) for key in _OTHER_FIELDS if key in info)
        fields = tuple((key, repr(value)) for key, value in sorted(described.items()))
        if has_version:
            return Identity(fields)
        return Identity(
            fields, max(_settled_at(described[key]) for key in (*_TIME_FIELDS, "modified") if key in described)
        )

    def arrow_file_system(self) -> Any:
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(self._fs))


def source_of(path: PathArgument | Sequence[PathArgument], options: Mapping[str, Any] | None) -> Source:
    """Return the source of a path, a URL, or a list of them.

    Raises:
        InvalidArgument: not a path, an empty list, options for a local path, or fsspec cannot open it.
    """
    several = isinstance(path, (list, tuple))
    paths = [_text_of(each) for each in (cast("Sequence[PathArgument]", path) if several else [path])]
    if not paths:
        raise InvalidArgument("the list of files to read is empty")
    local = [_local_path(each) for each in paths]
    if all(each is not None for each in local):
        if options:
            raise InvalidArgument(f"storage_options are for fsspec's drivers, but {paths[0]} is a local path")
        return LocalSource(cast("list[str]", local), several)
    return FsspecSource(paths, several, options or {})


def _text_of(path: object) -> str:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"a file to read must be given as a path or URL, or a list of them, but got {path!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the path {path!r} is not valid Unicode, which PyArrow needs: rename it") from error
    return text


def _local_path(path: str) -> str | None:
    for prefix in _LOCAL_PREFIXES:
        if path.startswith(prefix) and "::" not in path:
            return path[len(prefix) :]
    return None if "://" in path or "::" in path else path


def _list_of(files: list[str], pattern: str | None = None) -> FileSet:
    if not files:
        raise FileNotFoundError(2, "no file matches the pattern", pattern)
    return FileSet("\n".join(files) if pattern is None else pattern, files, tuple(files))


def _checked_files(folder: str, files: list[str]) -> tuple[str, ...]:
    if not files:
        raise FileNotFoundError(2, "the directory contains no files", folder)
    return tuple(files)


def _files_below(folder: str) -> list[str]:
    files: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        files += [os.path.join(parent, name) for name in names if not _is_hidden(name)]
    return sorted(files)


def _raise(error: OSError) -> None:
    raise error


def _is_hidden(path: str) -> bool:
    """Return whether Arrow ignores the file when it reads its directory."""
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def _settled_at(timestamp: object) -> float:
    """Return from when on another change is certain to get another timestamp."""
    number = _unix_time(timestamp)
    if number is None:
        return time.time() + _WHOLE_SECONDS
    return number + (_WHOLE_SECONDS if number == int(number) else _CLOCK_TICK_SECONDS)


def _unix_time(timestamp: object) -> float | None:
    if isinstance(timestamp, datetime):
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(timestamp, (int, float)):
        return float(timestamp)
    if isinstance(timestamp, str):
        parsers: tuple[Callable[[str], datetime], ...] = (parsedate_to_datetime, datetime.fromisoformat)
        for parse in parsers:
            with suppress(ValueError, TypeError):
                return _unix_time(parse(timestamp))
    return None
