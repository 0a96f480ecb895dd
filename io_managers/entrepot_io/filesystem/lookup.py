"""Looking up files and directories among the names of a session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import InvalidArgument, ObjectNotFound

from entrepot_io.filesystem.formats import FORMATS, Format, split
from entrepot_io.filesystem.paths import is_regular
from entrepot_io.filesystem.sealing import resolved

if TYPE_CHECKING:
    from entrepot import ObjectInfo, Store

_MAX_ATTEMPTS = 64  # attempts to look up a name that is bound to one object after another


@dataclass(frozen=True, slots=True)
class File:
    """A file of a session.

    Attributes:
        store: the session.
        info: the object.
        format: the format that the object is to be read in; None: its own bytes.
    """

    store: Store
    info: ObjectInfo
    format: Format | None


@dataclass(frozen=True, slots=True)
class Children:
    """What is in a directory.

    Attributes:
        files: the objects, by the last part of their names.
        folders: last parts of the names of directories.
    """

    files: dict[str, ObjectInfo]
    folders: list[str]


def find_file(store: Store, name: str) -> File | None:
    """The file with a name: an object of that name, or else a table or an array whose name lacks only a format's
    suffix; None: there is no such file."""
    info = _named(store, name)
    if info is not None:
        return File(store, info, None)
    stem, wanted = split(name)
    if wanted is not None:
        info = _named(store, stem)
        if info is not None and format_of(info, wanted.suffix) is not None:
            return File(store, info, wanted)
    return None


def format_of(info: ObjectInfo, suffix: str) -> Format | None:
    """The format with a suffix; None: there is none, or the object cannot be read in it."""
    wanted = FORMATS.get(suffix)
    return wanted if wanted is not None and info.collection is None and info.type in wanted.types else None


def _named(store: Store, name: str) -> ObjectInfo | None:
    for _ in range(_MAX_ATTEMPTS):
        try:
            oid = resolved(store, name)
        except InvalidArgument:  # no object can have this name
            return None
        if oid is None:
            return None
        try:
            return store.info(oid)
        except ObjectNotFound:  # replaced since the name was resolved: resolve it again
            continue
    return None


def is_folder(store: Store, name: str) -> bool:
    """Whether there are objects below a name."""
    prefix = f"{name}/"
    entries = raw_objects.iter_entries(store, _escaped(prefix) + "*")
    try:
        return any(_is_below(bound, prefix) for entry in entries for bound in entry.names)
    except InvalidArgument:  # no object can have such a name
        return False


def children_of(store: Store, name: str) -> Children:
    """The files and directories directly below a name; below the session for an empty one."""
    files: dict[str, ObjectInfo] = {}
    folders: set[str] = set()
    for rest, info in names_below(store, name):
        child, slash, _ = rest.partition("/")
        if slash:
            folders.add(child)
        else:
            files[child] = info
    return Children(dict(sorted(files.items())), sorted(folders))


def names_below(store: Store, name: str) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield the objects at all levels below a name, with what their names have after it."""
    prefix = f"{name}/" if name else ""
    for info in store.list(_escaped(prefix) + "*"):
        for bound in info.names:
            if _is_below(bound, prefix):
                yield bound[len(prefix) :], info


def _is_below(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and len(name) > len(prefix) and is_regular(name)


def _escaped(text: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", text)
