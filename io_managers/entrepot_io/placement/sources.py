"""Named sources of locations for long-running processes: each call returns what is known at that time.

A source is an object whose ``places()`` returns :class:`~entrepot_io.placement.locating.Places`. Files are built in;
packages add others through the entry-point group ``entrepot.locations``: a name, and a function that takes the text
after the colon and returns a source. A slow one should be wrapped in :class:`~entrepot_io.placement.polled.Polled`:
code that creates pods must not wait.
"""

from __future__ import annotations

import os
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar, Protocol

from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_io.placement.locating import Places, read_places

ENTRY_POINTS = "entrepot.locations"
REFERENCES = "references"


class LocationsUnavailable(EntrepotError):
    """Locations are currently unknown; pods are created without them."""

    code: ClassVar[str] = "locations_unavailable"


class Source(Protocol):
    """Where objects are."""

    def places(self) -> Places:
        """What is currently known.

        Raises:
            EntrepotError: nothing is known at the moment.
        """
        ...


class FileSource:
    """A locations file (docs/formats/placement.md), reread when it changes.

    Args:
        path: of the file; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._known: tuple[tuple[int, int, int], Places] | None = None  # guarded by _lock

    def places(self) -> Places:
        """The file's current content.

        Raises:
            LocationsUnavailable: it cannot be read.
            InvalidArgument: its content is invalid; the message gives the position.
            VersionMismatch: it was written by a newer version.
        """
        try:
            with self._path.open(encoding="utf-8") as file:
                there = os.fstat(file.fileno())
                state = (there.st_ino, there.st_mtime_ns, there.st_size)
                with self._lock:
                    if self._known is not None and self._known[0] == state:
                        return self._known[1]
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise LocationsUnavailable(f"the file of locations {self._path} cannot be read: {error}") from error
        found = read_places(text, str(self._path))
        with self._lock:
            self._known = (state, found)
        return found


def open_source(said: str) -> tuple[Source | None, bool]:
    """Open the source that a setting names.

    Args:
        said: ``references`` (objects are on the host that their reference names), the absolute path of a file, or
            ``NAME:REST`` for the source NAME of a package; or ``references`` and one of the others, separated by a
            comma.

    Returns:
        The source, None if there is only ``references``; and whether references are used for objects unknown to it.

    Raises:
        InvalidArgument: there is no such source; the message lists those that exist.
    """
    parts = [part.strip() for part in said.split(",") if part.strip()]
    others = [part for part in parts if part != REFERENCES]
    if not parts or len(others) > 1:
        raise InvalidArgument(f"locations come from {REFERENCES!r}, one other source, or both; not from {said!r}")
    return (_named(others[0]) if others else None), REFERENCES in parts


def _named(said: str) -> Source:
    if said.startswith("/"):
        return FileSource(said)
    name, _, rest = said.partition(":")
    known = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in known:
        others = "".join(f", {one}:..." for one in sorted(known))
        raise InvalidArgument(
            f"there is no source of locations {said!r}; there are {REFERENCES!r}, the absolute path of a file{others}"
        )
    found: Source = known[name].load()(rest)
    return found
