"""Declaring a session durable: what is put in it is also written to a URL, and found there when the store lacks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, cast

from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._shared_client import SharedClient

DECLARATION_KEY = "entrepot.durable"
FORMAT_VERSION = 1
MODES = ("through", "behind")


@dataclass(frozen=True, slots=True)
class Durable:
    """What is written where.

    Attributes:
        url: the folder of the durable tier, such as ``s3://bucket/durable``.
        mode: ``"through"``: a put returns when the object is there; ``"behind"``: a thread of the putting process
            writes it, and ``close``, ``flush_durable`` and the end of the process wait for it.
        match: a glob over names: what is put or named so is durable. ``"*"``: everything, with or without a name;
            ``""``: only what ``make_durable`` is told.
        storage_options: for fsspec's driver. It may hold secrets, so it is not kept in the store: other processes need
            it from their own argument, or from the driver's environment and configuration.
    """

    url: str
    mode: Literal["through", "behind"] = "through"
    match: str = "*"
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url:
            raise InvalidArgument(f"the place of a durable tier is a URL or path, but got {self.url!r}")
        if self.mode not in MODES:
            raise InvalidArgument(f"a durable session is written 'through' or 'behind', but got {self.mode!r}")
        if not isinstance(self.match, str):
            raise InvalidArgument(f"match is a glob over names, but got {self.match!r}")

    def covers(self, name: str) -> bool:
        """Whether what is put under this name (empty: none) is durable."""
        return self.match == "*" or (bool(name) and fnmatchcase(name, self.match))

    def to_bytes(self) -> bytes:
        """As the session keeps it."""
        text = {"entrepot_durable": FORMAT_VERSION, "url": self.url, "mode": self.mode, "match": self.match}
        return json.dumps(text).encode()


def from_bytes(data: bytes) -> Durable:
    """Read what :meth:`Durable.to_bytes` wrote.

    Raises:
        VersionMismatch: a newer version wrote it.
        CorruptData: it is something else.
    """
    try:
        said = json.loads(data)
        version = int(said["entrepot_durable"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptData(f"the declaration that this session is durable cannot be read: {error}") from error
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"this session was declared durable in format {version}, this installation reads up to {FORMAT_VERSION}: "
            "upgrade entrepot here"
        )
    try:
        return Durable(said["url"], said["mode"], said["match"])
    except (KeyError, InvalidArgument) as error:
        raise CorruptData(f"the declaration that this session is durable cannot be read: {error}") from error


def declared(client: SharedClient, scope: str, session: str) -> Durable | None:
    """What a session was declared to be, by whichever process; asked of shared memory alone."""
    data = client.raw.get_small(ObjectID.derive(scope, session, DECLARATION_KEY).binary)
    return None if data is None else from_bytes(data)


def wished(argument: Durable | str | Literal[False] | None, url: str | None, mode: str | None) -> Durable | None:
    """What an argument, or else the settings, ask for; None: nothing."""
    if argument is False:
        return None
    if isinstance(argument, Durable):
        return argument
    if argument is not None:
        return Durable(argument, cast("Any", mode or "through"))
    return Durable(url, cast("Any", mode or "through")) if url else None
