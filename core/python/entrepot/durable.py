"""Durable sessions: what is put in them is also written to a URL, and reloaded from there if the store lacks it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, cast

from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._client.shared_client import SharedClient

DECLARATION_KEY = "entrepot.durable"
FORMAT_VERSION = 1
MODES = ("through", "behind")
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Durable:
    """Declaration of a durable session: what is written, and where.

    Attributes:
        url: directory of the durable tier, such as ``s3://bucket/durable``. A relative path is made absolute, because
            processes with other working directories read it.
        mode: ``"through"``: a put returns once the object is written there; ``"behind"``: a thread of the putting
            process writes it, and ``close``, ``flush_durable`` and the end of the process wait for it.
        match: a glob over names: objects put or named under a matching name are durable. ``"*"``: all objects, with or
            without a name; ``""``: only those passed to ``make_durable``.
        storage_options: passed to fsspec's driver. They may hold secrets, so they are not kept in the store: other
            processes need them as an argument of their own, or in the driver's environment or configuration.

    >>> Durable("s3://bucket/runs", mode="behind", match="model*").mode
    'behind'
    """

    url: str
    mode: Literal["through", "behind"] = "through"
    match: str = "*"
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.strip():
            raise InvalidArgument(f"the location of a durable tier must be a URL or path, but got {self.url!r}")
        if _is_relative(self.url):
            object.__setattr__(self, "url", os.path.abspath(self.url))
        if self.mode not in MODES:
            raise InvalidArgument(f"a durable session's mode must be 'through' or 'behind', but got {self.mode!r}")
        if not isinstance(self.match, str):
            raise InvalidArgument(f"match must be a glob over names, but got {self.match!r}")

    def covers(self, name: str) -> bool:
        """Return whether an object put under this name (empty: none) is durable."""
        return self.match == "*" or (bool(name) and fnmatchcase(name, self.match))

    def to_bytes(self) -> bytes:
        """Serialize the declaration for storage in the session."""
        text = {"entrepot_durable": FORMAT_VERSION, "url": self.url, "mode": self.mode, "match": self.match}
        return json.dumps(text).encode()


def from_bytes(data: bytes) -> Durable:
    """Parse what :meth:`Durable.to_bytes` wrote.

    Raises:
        VersionMismatch: it was written by a newer version.
        CorruptData: it is something else.
    """
    try:
        declaration = json.loads(data)
        version = int(declaration["entrepot_durable"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptData(f"this session's durable configuration cannot be read: {error}") from error
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"this session's durable configuration has format {version}, but this installation reads up to "
            f"{FORMAT_VERSION}: upgrade entrepot here"
        )
    try:
        return Durable(declaration["url"], declaration["mode"], declaration["match"])
    except (KeyError, InvalidArgument) as error:
        raise CorruptData(f"this session's durable configuration cannot be read: {error}") from error


def durable_config(client: SharedClient, scope: str, session: str) -> Durable | None:
    """Return a session's declaration, whichever process made it. Reads shared memory only, never asks the daemon."""
    data = client.raw.get_small(ObjectID.derive(scope, session, DECLARATION_KEY).binary)
    return None if data is None else from_bytes(data)


def _is_relative(url: str) -> bool:
    """Whether it is a path below the working directory: ``runs``, ``./runs``; ``~/runs`` too, if no shell expanded it.

    What has a scheme with a single slash is an error of its own, when it is opened.
    """
    return not _SCHEME.match(url) and not os.path.isabs(url)


def durable_of_settings(
    url: str | None, mode: str | None, storage_options: Mapping[str, Any] | None = None
) -> Durable | None:
    """Return the declaration that the settings request; None: none.

    Raises:
        InvalidArgument: a relative path, which another process would take for another folder; ``memory://``, which
            other processes do not see; an unknown mode.
    """
    if not url:
        return None
    if _is_relative(url):
        raise InvalidArgument(
            f"ENTREPOT_DURABLE (durable in the configuration file) must be a URL or an absolute path, but got {url!r}: "
            f"a process with another working directory would use another folder. Here it would be "
            f"{os.path.abspath(os.path.expanduser(url))}"
        )
    if url.startswith("memory://"):
        raise InvalidArgument(
            f"ENTREPOT_DURABLE (durable in the configuration file) is {url!r}, in the memory of one process and lost "
            "when it exits: use a persistent location"
        )
    return Durable(url, cast("Any", mode or "through"), storage_options=storage_options)


def requested_durable(
    argument: Durable | str | Literal[False] | None, url: str | None, mode: str | None
) -> Durable | None:
    """Return the declaration requested by the argument, or else by the settings; None: none was requested.

    Raises:
        InvalidArgument: as for :func:`durable_of_settings` and ``Durable``.
    """
    if argument is False:
        return None
    if isinstance(argument, Durable):
        return argument
    if argument is not None:
        return Durable(argument, cast("Any", mode or "through"))
    return durable_of_settings(url, mode)
