"""Garbage on this machine: values of finished runs, and sockets and spill directories of dead stores.

Whatever is found is removed only if it is still as it was found: a session that was opened or used since stays, as does
a directory or a socket that a store has taken over.
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
    """Something that nobody needs any more.

    Attributes:
        kind: what it is.
        name: scope and name of a session, otherwise a path.
        why: why it is garbage.
        nbytes: bytes that removing it frees, in memory or on disk.
        objects: for a session: number of objects in it.
        last_used: for a session: last use according to the daemon, in nanoseconds since 1970.
    """

    kind: Literal["session", "socket", "spill"]
    name: tuple[str, str] | Path
    why: str
    nbytes: int = 0
    objects: int = 0
    last_used: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search: garbage, errors met while searching, and which orchestrators' runs were checked."""

    garbage: list[Garbage]
    problems: list[str] = field(default_factory=list[str])
    asked: Asked = field(default_factory=Asked)


def sessions(store: Store) -> list[dict[str, Any]]:
    """Return all sessions as the daemon reports them, except one that exists only because we connected."""
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
    """Find sessions that nobody has open, and whose run is over or whose time to live has passed."""
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
    """Find sockets of dead private stores, and spill directories of stores that are not running.

    Args:
        spill_folders: directories to search, in addition to the default one.
        older_than: seconds that a spill directory must have been untouched; the next store at its address would
            adopt a newer one.
    """
    found: list[Garbage] = []
    for path in sorted(runtime_folder().glob("*.sock")):
        if _is_dead(path):
            found.append(Garbage("socket", path, "no store listens at it"))
    for folder in sorted({default_spill_folder(), *spill_folders}):
        found += _left_in(folder, older_than)
    return Found(found)


def default_spill_folder() -> Path:
    """Return the directory that stores spill to by default; the daemon uses the same name."""
    return Path(f"/var/tmp/entrepot-{os.getuid()}")  # noqa: S108


def remove(store: Store | None, one: Garbage) -> str:
    """Remove a piece of garbage, unless it is in use again.

    Args:
        store: for sessions.
        one: what was found.

    Returns:
        Why it was not removed; empty if it was.

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
    """Remove a session unless a process has it open or has used it since; atomic in the daemon.

    Returns:
        Why it was not removed; empty if it was.

    Raises:
        ObjectNotFound: there is no such session, and ``last_used`` is 0.
        VersionMismatch: the daemon is too old for this request.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        removed, opened_by = raw.remove_unused_session(scope, session, last_used)
    except ObjectNotFound:
        if last_used:
            return ""  # gone by itself in the meantime
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
        return True  # declared durable, in a form that cannot be read here


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to take a store's lock file; yield whether that succeeded. While we hold it, no store can start there."""
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
            return error.errno == errno.ECONNREFUSED  # any other error means a store that is busy or stopped, not dead
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
        return  # missing, or another user's
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
        names = sorted(path.iterdir(), key=lambda one: one.name == "lock")  # delete the lock last: it protects the rest
        for one in names:
            if _SPILL_FILES.fullmatch(one.name):
                one.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            path.rmdir()
    return ""
