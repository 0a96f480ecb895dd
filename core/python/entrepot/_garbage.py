"""What is left over on this machine: values of runs that are over, sockets and spill folders of stores that died.

Whatever is found is removed as it was found or not at all: a session that somebody opened or used meanwhile stays, and
so does a folder or a socket that a store has taken.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from entrepot._launcher import listeners
from entrepot._settings import runtime_folder
from entrepot.durable import declared
from entrepot.ended_runs import Asked, ended
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, VersionMismatch

if TYPE_CHECKING:
    from entrepot._store import Store

_SPILL_NAME = re.compile(r"[0-9a-f]{16}")
_SPILL_FILES = re.compile(r"lock|manifest.*|probe-.*|spill-\d+")
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something that nobody needs.

    Attributes:
        kind: what it is.
        name: of a session its scope and its name, else a path.
        why: nobody needs it.
        nbytes: what removing it frees, in memory or on disk.
        objects: of a session: how many are in it.
        last_used: of a session, as the daemon says it, in nanoseconds since 1970.
    """

    kind: Literal["session", "socket", "spill"]
    name: tuple[str, str] | Path
    why: str
    nbytes: int = 0
    objects: int = 0
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to remove, and what could not be found out; whose runs were looked at."""

    garbage: list[Garbage]
    problems: list[str] = field(default_factory=list[str])
    asked: Asked = field(default_factory=Asked)


def sessions(store: Store) -> list[dict[str, Any]]:
    """All sessions of the store as the daemon tells of them; those that are there only because we look are left out."""
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    ours = (store.scope, store.session_name)
    told: list[dict[str, Any]] = []
    for one in json.loads(raw.sessions())["sessions"]:
        if (one["scope"], one["session"]) == ours:
            one["opened_by"] -= 1
            if one["objects"] == 0 and one["opened_by"] == 0 and one["session"] == "":
                continue
        told.append(one)
    return told


def in_store(store: Store) -> Found:
    """Sessions that nobody has open, and whose run is over or whose time to live has passed."""
    unused = {(one["scope"], one["session"]): one for one in sessions(store) if one["session"] and not one["opened_by"]}
    why, problems, asked = ended(store, unused)
    for place, one in unused.items():
        if one["ttl_seconds"] and one["idle_seconds"] >= one["ttl_seconds"]:
            why.setdefault(place, f"nobody used it for {int(one['idle_seconds'])} s, and it lives {one['ttl_seconds']}")
    found: list[Garbage] = []
    for place, said in sorted(why.items()):
        one = unused[place]
        if _is_durable(store, *place):
            problems.append(f"session {place[1]!r} of scope {place[0]!r} is durable, and stays: {said}")
            continue
        found.append(Garbage("session", place, said, one["nbytes"], one["objects"], one["last_used_unix_ns"]))
    return Found(found, problems, asked)


def on_disk(spill_folders: Iterable[Path], older_than: float) -> Found:
    """Sockets of private stores that died, and what stores that nobody runs left in spill folders.

    Args:
        spill_folders: where to look, beside the default one.
        older_than: seconds that a spill folder has to lie untouched; the next store at its address would take it over.
    """
    found: list[Garbage] = []
    for path in sorted(runtime_folder().glob("*.sock")):
        if _is_dead(path):
            found.append(Garbage("socket", path, "no store listens at it"))
    for folder in sorted({default_spill_folder(), *spill_folders}):
        found += _left_in(folder, older_than)
    return Found(found)


def default_spill_folder() -> Path:
    """Where stores spill to that were told nothing; as the daemon names it."""
    return Path(f"/var/tmp/entrepot-{os.getuid()}")  # noqa: S108


def remove(store: Store | None, one: Garbage) -> str:
    """Remove it, or say why it stays.

    Args:
        store: for sessions.
        one: what was found.

    Returns:
        Empty: it is gone.

    Raises:
        StoreUnavailable: the store cannot be reached.
        VersionMismatch: the daemon is of an older version.
    """
    if isinstance(one.name, tuple):
        assert store is not None
        return remove_session(store, *one.name, one.last_used)
    try:
        return _remove_socket(one.name) if one.kind == "socket" else _remove_spill(one.name)
    except OSError as error:
        return f"{error.strerror}: {error.filename}" if error.filename else str(error)


def remove_session(store: Store, scope: str, session: str, last_used: int = 0) -> str:
    """Remove a session unless somebody has it open or used it since; else say why it stays. One step in the daemon.

    Raises:
        ObjectNotFound: there is none.
        VersionMismatch: the daemon is older than this request.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        removed, opened_by = raw.remove_unused_session(scope, session, last_used)
    except ObjectNotFound:
        if last_used:
            return ""  # it went by itself meanwhile
        raise
    except InvalidArgument as error:
        raise VersionMismatch(
            f"the store at {store.address} is older and cannot remove a session only if nobody uses it ({error}): run "
            "'entrepot upgrade', or 'entrepot sessions rm --force'"
        ) from error
    if removed:
        return ""
    return f"{opened_by} processes have it open" if opened_by else "it was used meanwhile"


def _is_durable(store: Store, scope: str, session: str) -> bool:
    try:
        return declared(store._client, scope, session) is not None  # pyright: ignore[reportPrivateUsage]
    except EntrepotError:
        return True  # it was declared to be, in a form that cannot be read here


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether nobody holds the lock file of a store; while we do, no store begins there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = os.fstat(fd).st_ino == path.lstat().st_ino
    except (BlockingIOError, FileNotFoundError):
        free = False
    try:
        yield free
    finally:
        os.close(fd)


def _is_dead(path: Path) -> bool:
    with suppress(OSError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with _locked(_lock_of(path)) as free:
            return free and _refuses(path) and not listeners(f"unix://{path}")
    return False


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno == errno.ECONNREFUSED  # any other error: a store that is busy or stopped, not dead
    return False


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _remove_socket(path: Path) -> str:
    with _locked(_lock_of(path)) as free:
        if not free or not _refuses(path) or listeners(f"unix://{path}"):
            return "a store listens at it now"
        path.unlink(missing_ok=True)
        _lock_of(path).unlink(missing_ok=True)
    return ""


def _left_in(folder: Path, older_than: float) -> Iterator[Garbage]:
    try:
        names = sorted(folder.iterdir())
    except OSError:
        return  # not there, or another user's
    for path in names:
        if not _SPILL_NAME.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError), _locked(path / "lock") as free:
            if not free:
                continue
            files = [one.stat() for one in path.iterdir()]
            newest = max((one.st_mtime for one in files), default=path.stat().st_mtime)
            idle = time.time() - newest
            if idle >= older_than:
                nbytes = sum(one.st_blocks * 512 for one in files)
                yield Garbage("spill", path, f"its store is gone, and nobody wrote it for {int(idle)} s", nbytes)


def _remove_spill(path: Path) -> str:
    with _locked(path / "lock") as free:
        if not free:
            return "a store uses it now"
        names = sorted(path.iterdir(), key=lambda one: one.name == "lock")  # the lock last: until then it is ours
        for one in names:
            if _SPILL_FILES.fullmatch(one.name):
                one.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            path.rmdir()
    return ""
