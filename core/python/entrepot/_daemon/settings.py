"""Settings: an argument takes precedence over the environment, then the configuration file, then the default."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from entrepot._daemon.units import parse_duration, parse_size
from entrepot.errors import AccessDenied, InvalidArgument, StoreUnavailable

SCOPE_MAX_BYTES = 160
SESSION_MAX_BYTES = 240
MAX_TTL_SECONDS = 2**32  # of a session: more than a century; 0 means no expiry
SOCKET_PATH_MAX_BYTES = 107  # size of sun_path in the kernel's sockaddr_un, less the terminating zero
KEYS = (
    "address",
    "scope",
    "session",
    "private_size",
    "private_idle_exit_seconds",
    "allow_pickle",
    "object_strings",
    "durable",
    "durable_mode",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings of one connection.

    Attributes:
        address: ``unix:///absolute/path``.
        configured: whether the user set the address; if not, it is the private daemon's, which may be started.
        scope: the deployment.
        session: the session within it; ``""`` is the scope's own.
        private_size: capacity of a private daemon, in the syntax of ``entrepotd --size``; None: its default.
        private_idle_exit_seconds: idle time after which a private daemon exits.
        allow_pickle: None: allowed unless the daemon is shared between users.
        pickled_classes: tells by its full name whether a class or function may be loaded from pickled data; None: any.
        object_strings: ``"object"`` or ``"arrow"``; see ``entrepot.connect``.
        durable: URL of the durable tier; None: none.
        durable_mode: ``"through"`` or ``"behind"``; None: the default.
    """

    address: str
    configured: bool
    scope: str
    session: str
    private_size: str | None
    private_idle_exit_seconds: int
    allow_pickle: bool | None
    pickled_classes: Callable[[str], bool] | None
    object_strings: Literal["object", "arrow"]
    durable: str | None
    durable_mode: str | None


def home_folder() -> Path | None:
    """Return the user's home directory, if any: a process in a pod may have neither HOME nor an entry in passwd."""
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) else None


def state_folder() -> Path:
    """Return the directory for logs: ``entrepot`` in the user's state directory, or the runtime directory as fallback.

    The fallback is used if the home directory does not exist, is not writable, or belongs to another user. Creates
    nothing, except the runtime directory.
    """
    override, home = os.environ.get("XDG_STATE_HOME"), home_folder()
    for base in (Path(override) if override else None, home / ".local" / "state" if home else None):
        if base is not None and base.is_absolute() and _is_usable(base / "entrepot"):
            return base / "entrepot"
    return runtime_folder()


def _is_usable(folder: Path) -> bool:
    """Return whether the directory is ours and writable, or could be created by us."""
    with suppress(OSError):
        if folder.is_dir():
            return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)
        ancestor = next(parent for parent in folder.parents if os.path.lexists(parent))
        return ancestor.is_dir() and os.access(ancestor, os.W_OK | os.X_OK)
    return False


def runtime_folder() -> Path:
    """Return the user's runtime directory for sockets and locks; create it with mode 0700 if necessary.

    Raises:
        AccessDenied: it belongs to another user, or others may write to it.
        StoreUnavailable: it cannot be created.
    """
    variable, base = _runtime_base()
    folder = base / ("entrepot" if variable == "XDG_RUNTIME_DIR" else f"entrepot-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, parents=variable == "XDG_RUNTIME_DIR", exist_ok=True)
        folder_stat = folder.lstat()
    except OSError as error:
        problem = (
            f"{variable} is {base}, but no folder can be created there"
            if variable
            else f"cannot create a runtime folder in {base}"
        )
        kind = AccessDenied if isinstance(error, PermissionError) else StoreUnavailable
        raise kind(
            f"{problem} ({error}): set XDG_RUNTIME_DIR to a folder of user {os.getuid()}, or start a store elsewhere "
            "and set ENTREPOT_ADDRESS to its address"
        ) from error
    if not stat.S_ISDIR(folder_stat.st_mode) or folder_stat.st_uid != os.getuid() or folder_stat.st_mode & 0o022:
        raise AccessDenied(
            f"the runtime folder {folder} belongs to user {folder_stat.st_uid} with mode "
            f"{folder_stat.st_mode & 0o7777:o}, but must belong to user "
            f"{os.getuid()} and be writable by nobody else: remove it, or set XDG_RUNTIME_DIR"
        )
    return folder


def _runtime_base() -> tuple[str, Path]:
    """Return the variable that says where runtime directories are, ``""`` if none does, and the directory.

    The variables are taken as they are: ``tempfile.gettempdir()`` chooses another directory when that of TMPDIR is
    full, and would so lead to another store.
    """
    for variable in ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"):
        base = os.environ.get(variable)
        if base and not (variable == "XDG_RUNTIME_DIR" and _is_private_to_another_user(Path(base))):
            return variable, Path(base).absolute()
    return "", Path("/tmp")  # noqa: S108 - the directory in it belongs to the user alone, which is checked


def _is_private_to_another_user(folder: Path) -> bool:
    """Return whether this is another user's own directory: ``sudo -E`` and ``su`` leave that of whoever calls them.

    What root would create there, its owner could not use.
    """
    try:
        folder_stat = folder.stat()
    except PermissionError:  # it is in another user's own directory
        return True
    except OSError:  # reported when it is used
        return False
    return folder_stat.st_uid != os.getuid() and not folder_stat.st_mode & 0o077


def private_address() -> str:
    """Return the address of this user's private daemon.

    Raises:
        InvalidArgument: the runtime directory's path is too long for a socket in it.
    """
    path = runtime_folder() / "store.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
        raise InvalidArgument(
            f"the private store's socket would be {path}, but a socket's path can have at most {SOCKET_PATH_MAX_BYTES} "
            "bytes: set XDG_RUNTIME_DIR to a shorter path, or start a store at a shorter address and set "
            "ENTREPOT_ADDRESS to it"
        )
    return f"unix://{path}"


def socket_path(address: str) -> Path:
    """Return the path of a ``unix://`` address.

    Raises:
        InvalidArgument: another form of address, a relative path, or one too long for a socket.
    """
    if not address.startswith("unix://"):
        raise InvalidArgument(f"an address must have the form unix:///absolute/path/to/socket, but got {address!r}")
    path = Path(address[len("unix://") :])
    if not path.is_absolute():
        raise InvalidArgument(
            f"the path of an address must be absolute (three slashes: unix:///...), but got {address!r}"
        )
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise InvalidArgument(f"the path of an address must be a valid file path, but got {address!r}") from None
    if size > SOCKET_PATH_MAX_BYTES:
        raise InvalidArgument(
            f"a socket's path can have at most {SOCKET_PATH_MAX_BYTES} bytes, but {path} has {size}: start the store "
            "in a folder with a shorter path, and set ENTREPOT_ADDRESS to its address"
        )
    return path


def config_path() -> Path | None:
    """Return the configuration file to use: ENTREPOT_CONFIG, or ``entrepot/config.toml`` in the user's configuration
    directory; None if there is none.

    Raises:
        InvalidArgument: ENTREPOT_CONFIG names a file that does not exist.
    """
    override = os.environ.get("ENTREPOT_CONFIG")
    if override:
        if not Path(override).is_file():
            raise InvalidArgument(f"ENTREPOT_CONFIG is {override}, which is not a file")
        return Path(override)
    base, home = os.environ.get("XDG_CONFIG_HOME"), home_folder()
    if not base and home is None:
        return None
    path = (Path(base) if base else Path(str(home)) / ".config") / "entrepot" / "config.toml"
    try:
        return path if path.is_file() else None
    except PermissionError:
        return None  # another user's home, which we may not search


def resolve(
    address: str | None = None,
    *,
    session: str | None = None,
    scope: str | None = None,
    allow_pickle: bool | None = None,
    pickled_classes: Callable[[str], bool] | None = None,
    object_strings: str | None = None,
) -> Settings:
    """Resolve the settings of one connection; arguments take precedence.

    Raises:
        InvalidArgument: a malformed value; the message names its source.
    """
    path = config_path()
    table = _read_config(path) if path else {}
    address = _lookup(address, "ENTREPOT_ADDRESS", table, "address")
    scope = _lookup(scope, "ENTREPOT_SCOPE", table, "scope") or "default"
    session = _lookup(session, "ENTREPOT_SESSION", table, "session") or ""
    check_length("scope", scope, SCOPE_MAX_BYTES)
    check_length("session", session, SESSION_MAX_BYTES)
    if address is not None:
        socket_path(address)
    idle = _lookup(None, "ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS", table, "private_idle_exit_seconds") or "900"
    try:
        idle_seconds = math.ceil(parse_duration(idle))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS (private_idle_exit_seconds in the configuration file): {error}"
        ) from None
    size = _lookup(None, "ENTREPOT_PRIVATE_SIZE", table, "private_size")
    try:
        if size is not None:
            parse_size(size)
    except InvalidArgument as error:
        raise InvalidArgument(f"ENTREPOT_PRIVATE_SIZE (private_size in the configuration file): {error}") from None
    return Settings(
        address=address or private_address(),
        configured=address is not None,
        scope=scope,
        session=session,
        private_size=size,
        private_idle_exit_seconds=idle_seconds,
        allow_pickle=_resolve_allow_pickle(allow_pickle, table),
        pickled_classes=pickled_classes,
        object_strings=_resolve_object_strings(object_strings, table),
        durable=_lookup(None, "ENTREPOT_DURABLE", table, "durable"),
        durable_mode=_lookup(None, "ENTREPOT_DURABLE_MODE", table, "durable_mode"),
    )


def _read_config(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        kind = AccessDenied if isinstance(error, PermissionError) else InvalidArgument
        raise kind(
            f"the configuration file {path} cannot be read: {error}; set ENTREPOT_CONFIG to use another"
        ) from error
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise InvalidArgument(f"{path}: unknown setting {unknown[0]!r}; known settings: {', '.join(KEYS)}")
    return table


def _lookup(argument: str | None, variable: str, table: dict[str, Any], key: str) -> str | None:
    if argument is not None:
        if not isinstance(argument, str):
            raise InvalidArgument(f"{key} must be a string, but got {type(argument).__name__}")
        return argument
    value = os.environ.get(variable)
    if value is not None and value != "":
        return value
    configured = table.get(key)
    return None if configured is None else str(configured)


def _resolve_allow_pickle(argument: bool | None, table: dict[str, Any]) -> bool | None:
    if argument is None:
        return _parse_boolean(_lookup(None, "ENTREPOT_ALLOW_PICKLE", table, "allow_pickle"))
    if not isinstance(argument, bool):
        raise InvalidArgument(f"allow_pickle must be True, False or None, but got {argument!r}")
    return argument


def _resolve_object_strings(argument: str | None, table: dict[str, Any]) -> Literal["object", "arrow"]:
    value = _lookup(argument, "ENTREPOT_OBJECT_STRINGS", table, "object_strings")
    if value is None or value == "object":
        return "object"
    if value == "arrow":
        return "arrow"
    raise InvalidArgument(f"object_strings (ENTREPOT_OBJECT_STRINGS) must be 'object' or 'arrow', but got {value!r}")


def _parse_boolean(value: str | None) -> bool | None:
    if value is None:
        return None
    lowered = value.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise InvalidArgument(f"ENTREPOT_ALLOW_PICKLE must be 1 or 0, but got {value!r}")


def check_length(subject: str, value: str, limit: int) -> None:
    """Check that a name can be stored.

    Raises:
        InvalidArgument: it is longer than ``limit`` bytes, has NUL characters, or is not valid UTF-8.
    """
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"a {subject} must be valid UTF-8, but got {value[:60]!r}") from None
    if size > limit or "\0" in value:
        raise InvalidArgument(
            f"a {subject} must be text of at most {limit} bytes without NUL characters, but got {size} bytes"
        )
