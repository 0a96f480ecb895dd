"""Paths of the file system: what part of a store each of them means.

    SCOPE/SESSION/NAME      an object by its name; slashes in the name are directories
    current/NAME                  the same, in the default scope and session of this process
    ID                      an object by its ID (40 hexadecimal digits), whatever its session

Scopes and sessions are one segment each, so what would be mistaken for something else is written in percent encoding.
The scope's own session, whose name is empty, is ``-``. Names are not encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from entrepot.ids import ObjectID

PROTOCOL = "entrepot"
DEFAULTS = "current"
OWN_SESSION = "-"

_ID = re.compile(r"([0-9a-f]{40})(\.[a-z0-9]+)?")
_UNENCODED = "!$&'()+,:;=_.-"
_RESERVED = frozenset({DEFAULTS, OWN_SESSION, ".", ".."})


@dataclass(frozen=True, slots=True)
class Location:
    """What a path means.

    Attributes:
        path: the path.
        scope: None: the path is the root, or names an object by its ID.
        session: None: also if the path is that of a scope.
        name: name of an object or a directory, or empty: the path is that of a session, or of something above it.
        folder: the path of its session; empty if it has none.
        oid: the object that the path names by its ID, if it does.
        suffix: text after the ID, such as ``.parquet``.
    """

    path: str
    scope: str | None = None
    session: str | None = None
    name: str = ""
    folder: str = ""
    oid: ObjectID | None = None
    suffix: str = ""

    @property
    def place(self) -> tuple[str | None, str | None, str, ObjectID | None, str]:
        """What the path means, without how it is written."""
        return self.scope, self.session, self.name, self.oid, self.suffix


def strip(path: str) -> str:
    """The path of a URL, without slashes around it.

    >>> strip("entrepot://default/run-1/a/b.csv"), strip("entrepot:///default/run-1/"), strip("/")
    ('default/run-1/a/b.csv', 'default/run-1', '')
    """
    return path.removeprefix(f"{PROTOCOL}:").strip("/")


def parse(path: str, default_scope: str, default_session: str) -> Location:
    """What a path means.

    Args:
        path: as :func:`strip` returns it.
        default_scope, default_session: what ``current`` stands for.

    >>> location = parse("kedro-a/kedro%2Frun/model/weights.bin", "default", "")
    >>> location.scope, location.session, location.name
    ('kedro-a', 'kedro/run', 'model/weights.bin')
    """
    first, _, rest = path.partition("/")
    if first == DEFAULTS:
        return Location(path, default_scope, default_session, rest, DEFAULTS)
    if not rest and (match := _ID.fullmatch(first)):
        return Location(path, oid=ObjectID(match[1]), suffix=match[2] or "")
    if not first:
        return Location(path)
    second, _, name = rest.partition("/")
    if not second:
        return Location(path, decode(first))
    return Location(path, decode(first), decode(second), name, f"{first}/{second}")


def encode(name: str) -> str:
    """The segment that stands for a scope or a session.

    >>> encode("airflow/etl/manual__2026-01-01"), encode(""), encode("-")
    ('airflow%2Fetl%2Fmanual__2026-01-01', '-', '%2D')
    """
    if not name:
        return OWN_SESSION
    if name in _RESERVED or _ID.fullmatch(name):
        return "".join(f"%{byte:02X}" for byte in name.encode())
    return quote(name, safe=_UNENCODED)


def decode(segment: str) -> str:
    """The scope or session that a segment stands for.

    >>> decode(encode("a/b")), decode(encode("%2F")), decode("-")
    ('a/b', '%2F', '')
    """
    return "" if segment == OWN_SESSION else unquote(segment)


def is_regular(name: str) -> bool:
    """Whether a name can be a path below its session: without empty segments.

    >>> is_regular("a/b"), is_regular("a//b"), is_regular("a/")
    (True, False, False)
    """
    return "" not in name.split("/")
