"""Garbage on this machine: values of finished runs, and sockets and spill directories of dead stores.

Whatever is found is removed only if it is still as it was found: a session that was opened or used since stays, as does
a directory or a socket that a store has taken over.
"""

from __future__ import annotations

import errno
import fcntl
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

from entrepot._client.queries import iter_objects, session_records
from entrepot._daemon.launcher import listening_pids
from entrepot._daemon.settings import runtime_folder
from entrepot.codec import inlined_bytes
from entrepot.durable import durable_config
from entrepot.ended_runs import CheckedRuns, find_ended_sessions
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.phrases import count_of, duration, session_phrase

if TYPE_CHECKING:
    from entrepot._store.store import Store

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
class SearchResult:
    """Result of a search: garbage, errors met while searching, and which orchestrators' runs were checked."""

    garbage: list[Garbage]
    problems: list[str] = field(default_factory=list[str])
    checked_runs: CheckedRuns = field(default_factory=CheckedRuns)


def list_sessions(store: Store) -> list[dict[str, Any]]:
    """Return all sessions as the daemon reports them, except one that exists only because we connected."""
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    own_session = (store.scope, store.session_name)
    result: list[dict[str, Any]] = []
    for session in session_records(raw):
        if (session["scope"], session["session"]) == own_session:
            session["opened_by"] -= 1
            if session["objects"] == 0 and session["opened_by"] == 0 and session["session"] == "":
                continue
        result.append(session)
    return result


def add_inlined_bytes(store: Store, sessions: Iterable[dict[str, Any]]) -> None:
    """Add to each session's ``nbytes`` the small values stored inline in metadata, which the daemon does not count."""
    by_name = {(session["scope"], session["session"]): session for session in sessions}
    if not any(session["objects"] for session in by_name.values()):
        return
    raw, number = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
    for record in iter_objects(raw, number, all_sessions=True):
        session = by_name.get((record["scope"], record["session"]))
        if session is not None:
            with suppress(EntrepotError):  # gone in the meantime, or its bytes are lost
                session["nbytes"] += inlined_bytes(raw.tree(bytes.fromhex(record["id"]))[0])


def find_in_store(store: Store) -> SearchResult:
    """Find sessions that nobody has open, and whose run is over or whose time to live has passed."""
    unused = {
        (session["scope"], session["session"]): session
        for session in list_sessions(store)
        if session["session"] and not session["opened_by"]
    }
    reasons, problems, checked_runs = find_ended_sessions(store, unused)
    for key, session in unused.items():
        if session["ttl_seconds"] and session["idle_seconds"] >= session["ttl_seconds"]:
            reasons.setdefault(
                key, f"unused for {int(session['idle_seconds'])} s, and its TTL is {duration(session['ttl_seconds'])}"
            )
    garbage: list[Garbage] = []
    add_inlined_bytes(store, (unused[key] for key in reasons))
    for key, reason in sorted(reasons.items()):
        session = unused[key]
        if _is_durable(store, *key):
            problems.append(f"{session_phrase(*key)} is durable and was not removed ({reason})")
            continue
        garbage.append(
            Garbage("session", key, reason, session["nbytes"], session["objects"], session["last_used_unix_ns"])
        )
    return SearchResult(garbage, problems, checked_runs)


def find_on_disk(spill_folders: Iterable[Path], older_than: float) -> SearchResult:
    """Find sockets of dead private stores, and spill directories of stores that are not running.

    Args:
        spill_folders: directories to search, in addition to the default one.
        older_than: seconds that a spill directory must have been untouched; the next store at its address would
            adopt a newer one.
    """
    garbage: list[Garbage] = []
    for path in sorted(runtime_folder().glob("*.sock")):
        if _is_dead(path):
            garbage.append(Garbage("socket", path, "no store listens on it"))
    for folder in sorted({default_spill_folder(), *spill_folders}):
        garbage += _spill_garbage_in(folder, older_than)
    return SearchResult(garbage)


def default_spill_folder() -> Path:
    """Return the directory that stores spill to by default; the daemon uses the same name."""
    return Path(f"/var/tmp/entrepot-{os.getuid()}")  # noqa: S108


def remove(store: Store | None, item: Garbage) -> str:
    """Remove a piece of garbage, unless it is in use again.

    Args:
        store: for sessions.
        item: what was found.

    Returns:
        Why it was not removed; empty if it was.

    Raises:
        StoreUnavailable: the store cannot be reached.
        VersionMismatch: the daemon is of an older version.
    """
    if isinstance(item.name, tuple):
        assert store is not None
        return remove_session(store, *item.name, item.last_used)
    try:
        return _remove_socket(item.name) if item.kind == "socket" else _remove_spill(item.name)
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
            f"the store at {store.address} is too old to remove a session only if nobody uses it ({error}): run "
            "'entrepot upgrade', or 'entrepot sessions rm --force'"
        ) from error
    if removed:
        return ""
    if opened_by:
        return f"{count_of(opened_by, 'process')} {'has' if opened_by == 1 else 'have'} it open"
    return "it has been used in the meantime"


def _is_durable(store: Store, scope: str, session: str) -> bool:
    try:
        return durable_config(store._client, scope, session) is not None  # pyright: ignore[reportPrivateUsage]
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
            return free and _refuses_connections(path) and not listening_pids(f"unix://{path}")
    return False


def _refuses_connections(path: Path) -> bool:
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
        if not free or not _refuses_connections(path) or listening_pids(f"unix://{path}"):
            return "a store listens on it now"
        path.unlink(missing_ok=True)
        _lock_of(path).unlink(missing_ok=True)
    return ""


def _spill_garbage_in(folder: Path, older_than: float) -> Iterator[Garbage]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return  # missing, or another user's
    for path in paths:
        if not _SPILL_NAME.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError), _locked(path / "lock") as free:
            if not free:
                continue
            files = [entry.stat() for entry in path.iterdir()]
            newest = max((entry.st_mtime for entry in files), default=path.stat().st_mtime)
            idle = time.time() - newest
            if idle >= older_than:
                nbytes = sum(entry.st_blocks * 512 for entry in files)
                yield Garbage("spill", path, f"its store is gone, and it was not written for {int(idle)} s", nbytes)


def _remove_spill(path: Path) -> str:
    with _locked(path / "lock") as free:
        if not free:
            return "a store uses it now"
        # Delete the lock last: it protects the rest.
        paths = sorted(path.iterdir(), key=lambda entry: entry.name == "lock")
        for entry in paths:
            if _SPILL_FILES.fullmatch(entry.name):
                entry.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            path.rmdir()
    return ""
