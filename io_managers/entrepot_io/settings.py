"""Settings shared by the orchestrator plugins.

Order of precedence: argument, ``ENTREPOT_*``, the orchestrator's configuration, default. An address that none of these
sets is left to ``entrepot.connect``, which looks further (its own configuration file, this user's private store).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

from entrepot._daemon.settings import SCOPE_MAX_BYTES, check_length, socket_path
from entrepot._daemon.units import parse_duration, parse_size
from entrepot.codec import COPY_MODES, OBJECT_STRINGS, CopyMode, ObjectStrings
from entrepot.errors import InvalidArgument

from entrepot_io.inline_policy import DEFAULT_INLINE_BELOW
from entrepot_io.sessions import parse_ttl

_T = TypeVar("_T")

MEASURED = "measured"
DEFAULT_RESERVE_SECONDS = 600.0


@dataclass(frozen=True)
class Settings:
    """The settings of a plugin.

    Attributes:
        address: of the store; ``None`` for the one that ``entrepot.connect`` finds. ``ENTREPOT_ADDRESS``.
        scope: the deployment; ``None`` for the orchestrator's default. ``ENTREPOT_SCOPE``.
        session_ttl: seconds that a run's session lives after its last use; default 24 h. ``ENTREPOT_SESSION_TTL``.
        copy: how values are read: ``"never"`` (read-only), ``"on_write"`` or ``"always"``. ``ENTREPOT_COPY``.
        inline_below: bytes of plain JSON below which a value stays in the orchestrator, if that has a place for it;
            default 4096. ``ENTREPOT_INLINE_BELOW``.
        allocate: whether NumPy and Arrow make tasks' large values in the store (``Store.allocating``); ``None``, the
            default: yes, if the store can be reached when a task begins. ``ENTREPOT_ALLOCATE``.
        reserve: what a task reserves in the store before it runs: bytes, ``"measured"`` (what it stored in earlier
            runs), or ``None``: nothing (``"off"``, the default). ``ENTREPOT_RESERVE``.
        reserve_timeout: seconds that a task waits for that; default 10 min. ``ENTREPOT_RESERVE_TIMEOUT``.
        object_strings: what pandas columns of Python's strings are read as: ``"object"`` or ``"arrow"``; ``None``, the
            default: as ``entrepot.connect`` finds it. ``ENTREPOT_OBJECT_STRINGS``.
    """

    address: str | None
    scope: str | None
    session_ttl: float
    copy: CopyMode
    inline_below: int
    allocate: bool | None = None
    reserve: str | int | None = None
    reserve_timeout: float = DEFAULT_RESERVE_SECONDS
    object_strings: ObjectStrings | None = None


def resolve(
    *,
    address: str | None = None,
    scope: str | None = None,
    session_ttl: float | str | None = None,
    copy: str | None = None,
    inline_below: int | str | None = None,
    allocate: bool | str | None = None,
    reserve: str | int | None = None,
    reserve_timeout: float | str | None = None,
    object_strings: str | None = None,
    lookup_option: Callable[[str], str | None] | None = None,
) -> Settings:
    """Resolve all settings.

    Args:
        address, scope, session_ttl, copy, inline_below, allocate, reserve, reserve_timeout, object_strings: the user's
            arguments; ``None`` falls through to the next source.
        lookup_option: looks up an option in the orchestrator's configuration, by the attribute's name.

    Raises:
        InvalidArgument: a setting is out of range; the message names it and its value, and the variable that set it.
    """

    def find(name: str, argument: Any, parse: Callable[[Any], _T]) -> _T:
        if argument is not None:
            return parse(argument)
        variable = f"ENTREPOT_{name.upper()}"
        if value := os.environ.get(variable):
            try:
                return parse(value)
            except InvalidArgument as error:
                raise InvalidArgument(f"{error} (set by {variable})") from None
        return parse((lookup_option(name) if lookup_option is not None else None) or None)

    return Settings(
        address=find("address", address, lambda value: address_setting(_text(value))),
        scope=find("scope", scope, lambda value: scope_setting(_text(value))),
        session_ttl=find("session_ttl", session_ttl, parse_ttl),
        copy=find("copy", copy, lambda value: copy_mode(_text(value))),
        inline_below=find("inline_below", inline_below, partial(_bytes, "inline_below")),
        allocate=find("allocate", allocate, partial(optional_switch, "allocate")),
        reserve=find("reserve", reserve, reserve_setting),
        reserve_timeout=find("reserve_timeout", reserve_timeout, partial(_seconds, "reserve_timeout")),
        object_strings=find("object_strings", object_strings, lambda value: object_strings_setting(_text(value))),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


@lru_cache(maxsize=64)
def address_setting(value: str | None) -> str | None:
    """Validate the form of a store's address; ``None``: it is not set. Cheap: called for every value.

    Raises:
        InvalidArgument: it is not ``unix:///absolute/path``, or that path is too long for a socket.
    """
    if value is not None:
        socket_path(value)
    return value


def scope_setting(value: str | None) -> str | None:
    """Validate a scope; ``None``: it is not set.

    Raises:
        InvalidArgument: it is too long, has NUL characters, or is empty, as a variable may be that fills it in. That
            would be neither the orchestrator's own scope nor one of the user's.
    """
    if value == "":
        raise InvalidArgument("scope must not be empty: give this deployment a name, or leave the setting out")
    if value is not None:
        check_length("scope", value, SCOPE_MAX_BYTES)
    return value


def copy_mode(value: str | None) -> CopyMode:
    """Validate a copy mode; ``"never"`` for ``None``.

    Raises:
        InvalidArgument: there is no such mode.
    """
    if value is None:
        return "never"
    if value not in COPY_MODES:
        raise InvalidArgument(f"copy must be one of {', '.join(map(repr, COPY_MODES))}, not {value!r}")
    return value


def object_strings_setting(value: str | None) -> ObjectStrings | None:
    """Validate what columns of Python's strings are read as; ``None``: it is not set.

    Raises:
        InvalidArgument: there is no such form.
    """
    if value is None or value in OBJECT_STRINGS:
        return value
    raise InvalidArgument(f"object_strings must be {' or '.join(map(repr, OBJECT_STRINGS))}, not {value!r}")


def reserve_setting(value: str | float | None) -> str | int | None:
    """Read what a task reserves: ``off`` or ``None``, ``measured``, or a size such as ``2GiB``.

    Returns:
        None, :data:`MEASURED`, or bytes.

    Raises:
        InvalidArgument: it is none of these.
    """
    if value is None:
        return None
    text = str(value).strip()
    if text.lower() in ("off", "0", ""):
        return None
    if text.lower() == MEASURED:
        return MEASURED
    try:
        return parse_size(text)
    except InvalidArgument:
        raise InvalidArgument(
            f"reserve must be off, measured or a size such as 512MiB or 2GiB, not {value!r}"
        ) from None


def _seconds(name: str, value: str | float | None) -> float:
    if value is None:
        return DEFAULT_RESERVE_SECONDS
    try:
        return parse_duration(str(value).strip())
    except InvalidArgument:
        raise InvalidArgument(f"{name} must be a duration such as 90s or 15min, not {value!r}") from None


def _bytes(name: str, value: str | float | None) -> int:
    if value is None:
        return DEFAULT_INLINE_BELOW
    try:
        count = int(value)
    except ValueError:
        count = -1
    if count < 0:
        raise InvalidArgument(f"{name} must be a non-negative number of bytes, not {value!r}")
    return count


def switch(name: str, value: str | float | None) -> bool:
    """Read a setting that is on or off; ``None`` is off.

    Raises:
        InvalidArgument: it is neither true nor false.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise InvalidArgument(f"{name} must be true or false, not {value!r}")


def optional_switch(name: str, value: str | float | None) -> bool | None:
    """Read a setting that is on, off or not set: ``None``.

    Raises:
        InvalidArgument: it is neither true nor false.
    """
    return None if value is None else switch(name, value)
