"""Named sources of locations for long-running processes: each call returns what is known at that time.

A source is an object whose ``places()`` returns :class:`~entrepot_operator.placement.locations.Locations`. Files are
built in; packages add others through the entry-point group ``entrepot.locations``: a name, and a function that takes
the text after the colon and returns a source. A slow one should be wrapped in
:class:`~entrepot_operator.placement.cached_source.CachedSource`: code that creates pods must not wait.
"""

from __future__ import annotations

import os
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar, Protocol

from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_operator.placement.locations import Locations, parse_locations

ENTRY_POINT_GROUP = "entrepot.locations"
REFERENCES = "references"


class LocationsUnavailable(EntrepotError):
    """Locations are currently unknown; pods are created without them."""

    code: ClassVar[str] = "locations_unavailable"
    short_code: ClassVar[str] = "E606"


class Source(Protocol):
    """A source of object locations."""

    def places(self) -> Locations:
        """Return the current locations.

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
        self._cached: tuple[tuple[int, int, int], Locations] | None = None  # guarded by _lock

    def places(self) -> Locations:
        """The file's current content.

        Raises:
            LocationsUnavailable: it cannot be read.
            InvalidArgument: its content is invalid; the message gives the position.
            VersionMismatch: it was written by a newer version.
        """
        try:
            with self._path.open(encoding="utf-8") as file:
                file_status = os.fstat(file.fileno())
                state = (file_status.st_ino, file_status.st_mtime_ns, file_status.st_size)
                with self._lock:
                    if self._cached is not None and self._cached[0] == state:
                        return self._cached[1]
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise LocationsUnavailable(f"cannot read the locations file {self._path}: {error}") from error
        locations = parse_locations(text, str(self._path))
        with self._lock:
            self._cached = (state, locations)
        return locations


def open_source(setting: str) -> tuple[Source | None, bool]:
    """Open the source that a setting names.

    Args:
        setting: ``references`` (objects are on the host that their reference names), the absolute path of a file, or
            ``NAME:REST`` for the source NAME of a package; or ``references`` and one of the others, separated by a
            comma.

    Returns:
        The source, None if there is only ``references``; and whether references are used for objects unknown to it.

    Raises:
        InvalidArgument: there is no such source; the message lists those that exist.
    """
    parts = [part.strip() for part in setting.split(",") if part.strip()]
    others = [part for part in parts if part != REFERENCES]
    if not parts or len(others) > 1:
        raise InvalidArgument(f"locations must come from {REFERENCES!r}, one other source, or both, not {setting!r}")
    return (_open_named_source(others[0]) if others else None), REFERENCES in parts


def _open_named_source(setting: str) -> Source:
    if setting.startswith("/"):
        return FileSource(setting)
    name, _, rest = setting.partition(":")
    available = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in available:
        others = "".join(f", {available_name}:..." for available_name in sorted(available))
        raise InvalidArgument(
            f"unknown source of locations {setting!r}; available: {REFERENCES!r}, the absolute path of a file{others}"
        )
    source: Source = available[name].load()(rest)
    return source
