"""A directory in a file of SQLite, shared by the processes of one machine.

Leases end by the clock that all of the machine's processes share and that nobody can set (CLOCK_BOOTTIME); those from
before the last boot have ended.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from entrepot.errors import AccessDenied, DirectoryUnavailable
from entrepot.file_locks import lock_within

from entrepot_cluster.directory.backends.interface import Entry, Lease, LeaseEnded, ServerState, Snapshot
from entrepot_cluster.directory.backends.polling import PollingSubscription
from entrepot_cluster.directory.codec import NUMBER_BYTES, NUMBERS, RECORDS, successor

_TABLES = """
CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    number INTEGER PRIMARY KEY, token TEXT NOT NULL, boot TEXT NOT NULL, ends REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
"""
_SEQUENCE = "sequence"
_VERSION = "version"  # of the instances


class EmbeddedBackend:
    """See :class:`~entrepot_cluster.directory.backends.interface.Backend`.

    Args:
        path: the file; it is created, with access for this user only. Its folder must exist.
        timeout: seconds to wait for other processes' writes.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None  # guarded by _lock
        self._file: tuple[int, int] | None = None  # which file it has open; guarded by _lock

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See the interface."""
        with self._transaction() as connection:
            rows = [connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone() for key in keys]
        return [None if row is None else bytes(row[0]) for row in rows]

    def read_prefixes(self, prefixes: Sequence[bytes]) -> list[list[Entry]]:
        """See the interface."""
        statement = "SELECT key, value FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        with self._transaction() as connection:
            groups = [connection.execute(statement, (prefix, successor(prefix))).fetchall() for prefix in prefixes]
        return [[Entry(bytes(key), bytes(value)) for key, value in rows] for rows in groups]

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """See the interface."""
        statement = "SELECT key, value FROM entries WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        begin = after + b"\x00" if after else prefix
        with self._transaction() as connection:
            rows = connection.execute(statement, (begin, successor(prefix), limit)).fetchall()
        return [Entry(bytes(key), bytes(value)) for key, value in rows]

    def write(self, lease: Lease, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """See the interface."""
        changes: dict[bytes, bytes | None] = dict.fromkeys(deletes)
        with self._transaction(write=True) as connection:
            if self._token(connection, lease.number) != lease.token:
                raise LeaseEnded
            self._change(connection, changes | dict(puts))

    def delete(self, keys: Sequence[bytes]) -> None:
        """See the interface."""
        with self._transaction(write=True) as connection:
            self._change(connection, dict.fromkeys(keys))

    def swap(self, expected: Mapping[bytes, bytes | None], new: Mapping[bytes, bytes | None]) -> bool:
        """See the interface."""
        with self._transaction(write=True) as connection:
            for key, value in expected.items():
                row = connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
                if (None if row is None else bytes(row[0])) != value:
                    return False
            self._change(connection, new)
        return True

    def grant(self, number: int, seconds: float) -> Lease:
        """See the interface."""
        token = secrets.token_hex(8)
        with self._transaction(write=True) as connection:
            row = (number, token, self._boot, _clock() + seconds)
            connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", row)
            self._increase(connection, _VERSION)
        return Lease(number, token)

    def keep(self, lease: Lease, seconds: float) -> bool:
        """See the interface."""
        with self._transaction(write=True) as connection:
            if self._token(connection, lease.number) != lease.token:
                return False
            connection.execute("UPDATE leases SET ends = ? WHERE number = ?", (_clock() + seconds, lease.number))
        return True

    def release(self, lease: Lease) -> None:
        """See the interface."""
        with self._transaction(write=True) as connection:
            connection.execute("DELETE FROM leases WHERE number = ? AND token = ?", lease)
            self._increase(connection, _VERSION)

    def holder(self, number: int) -> str | None:
        """See the interface."""
        with self._transaction() as connection:
            return self._token(connection, number)

    def next_sequence(self) -> int:
        """See the interface."""
        with self._transaction(write=True) as connection:
            return self._increase(connection, _SEQUENCE)

    def raise_sequence(self, to: int) -> None:
        """See the interface."""
        with self._transaction(write=True) as connection:
            if self._counter(connection, _SEQUENCE) < to:
                connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (_SEQUENCE, to))

    def state(self) -> ServerState:
        """See the interface; the identity is that of the file."""
        with self._transaction() as connection:
            return ServerState(f"{self._file}", self._counter(connection, _SEQUENCE))

    def now(self) -> float:
        """See the interface."""
        return time.time()

    def snapshot(self) -> Snapshot:
        """See the interface."""
        with self._transaction() as connection:
            statement = "SELECT key, value FROM entries WHERE key >= ? AND key < ?"
            rows = connection.execute(statement, (RECORDS, successor(RECORDS))).fetchall()
            live = self._live(connection)
            cursor = f"{self._counter(connection, _VERSION)}:{len(live)}:{self._file}"
        return Snapshot(
            records={
                int.from_bytes(key[1:], "big"): bytes(value) for key, value in rows if len(key) == 1 + NUMBER_BYTES
            },
            live=live,
            cursor=cursor,
        )

    def subscribe(self, cursor: str) -> PollingSubscription:
        """See the interface."""
        return PollingSubscription(cursor, self._cursor)

    def tidy(self) -> None:
        """See the interface."""
        with self._transaction(write=True) as connection:
            connection.execute("DELETE FROM leases WHERE boot != ? OR ends < ?", (self._boot, _clock() - 86400))

    def close(self) -> None:
        """See the interface."""
        with self._lock:
            self._drop()

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction, committed at the end of the block unless it raises."""
        if not self._lock.acquire(timeout=self._timeout):
            raise DirectoryUnavailable(f"the directory {self._path} is in use by another thread of this process")
        try:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            self._drop()
            raise self._failure(error) from error
        finally:
            self._lock.release()

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now; another one may have replaced it."""
        try:
            status = os.stat(self._path)
            file = (status.st_dev, status.st_ino)
        except FileNotFoundError:
            file = None
        if self._connection is not None and file == self._file:
            return self._connection
        self._drop()
        if file is None:
            self._create()
        # Opened only if it is there: what SQLite itself creates would not be created under the lock.
        url = f"file:{quote(str(self._path.absolute()))}?mode=rw"
        connection = sqlite3.connect(
            url, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_TABLES)
        except BaseException:
            connection.close()
            raise
        status = os.stat(self._path)
        self._connection, self._file = connection, (status.st_dev, status.st_ino)
        return connection

    def _create(self) -> None:
        """Create the file, unless another process does.

        What a deleted one has left beside it is removed before: processes that have it open still write there, and
        SQLite would take it for the new one's.
        """
        with locked(Path(f"{self._path}.lock"), self._timeout):
            if not self._path.exists():
                for suffix in ("-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                # With this mode from the beginning; SQLite gives its other files the same one.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = None

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, PermissionError):
            return AccessDenied(f"the directory {self._path} cannot be opened: {error}")
        if "locked" in str(error):
            return DirectoryUnavailable(
                f"the directory {self._path} was locked by another process for {self._timeout:g} s"
            )
        return DirectoryUnavailable(f"the directory {self._path} cannot be used: {error}")

    def _cursor(self) -> str:
        with self._transaction() as connection:
            return f"{self._counter(connection, _VERSION)}:{len(self._live(connection))}:{self._file}"

    def _live(self, connection: sqlite3.Connection) -> set[int]:
        statement = "SELECT number FROM leases WHERE boot = ? AND ends > ?"
        return {number for (number,) in connection.execute(statement, (self._boot, _clock()))}

    def _token(self, connection: sqlite3.Connection, number: int) -> str | None:
        statement = "SELECT token FROM leases WHERE number = ? AND boot = ? AND ends > ?"
        row = connection.execute(statement, (number, self._boot, _clock())).fetchone()
        return None if row is None else str(row[0])

    def _change(self, connection: sqlite3.Connection, changes: Mapping[bytes, bytes | None]) -> None:
        puts = [(key, value) for key, value in changes.items() if value is not None]
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", puts)
        deletes = [(key,) for key, value in changes.items() if value is None]
        connection.executemany("DELETE FROM entries WHERE key = ?", deletes)
        if any(key.startswith((RECORDS, NUMBERS)) for key in changes):
            self._increase(connection, _VERSION)

    def _increase(self, connection: sqlite3.Connection, name: str) -> int:
        value = self._counter(connection, name) + 1
        connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, value))
        return value

    @staticmethod
    def _counter(connection: sqlite3.Connection, name: str) -> int:
        row = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold a lock between processes, which ends with its holder."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock_within(descriptor, timeout):
            raise DirectoryUnavailable(
                f"another process has been creating the directory beside {path} for {timeout:g} s"
            )
        yield
    finally:
        os.close(descriptor)


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
