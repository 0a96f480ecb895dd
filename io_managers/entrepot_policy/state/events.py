"""The event log: what happened, to which object, by which rule, and how long it took.

One append-only file of JSON lines for each scope and host. At half of ``max_bytes`` the file becomes the older half and
a new one is started, so that both together stay within the limit. It is a file rather than in the store, because it
also records the store's death.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from entrepot.file_locks import lock_within
from entrepot_io.keys import shorten

from entrepot_policy.rules.match_target import Task
from entrepot_policy.schema.constants import DEFAULT_EVENT_BYTES

FORMAT_VERSION = 1
VARIABLE = "ENTREPOT_EVENTS"
TEXT_MAX_BYTES = 2048
FOLLOW_SECONDS = 0.2
# Others hold the lock for microseconds. Whoever waits this long waits for a process that is stopped.
_LOCK_SECONDS = 1.0
_OLDER = ".older"

KINDS = (
    "checkpoint_written",
    "checkpoint_skipped",
    "checkpoint_queued",
    "checkpoint_failed",
    "checkpoint_abandoned",
    "checkpoint_pruned",
    "checkpoint_damaged",
    "droppable",
    "not_droppable",
    "object_lost",
    "object_dropped",
    "instance_lost",
    "daemon_lost",
    "store_full",
    "task_failed",
    "reloaded",
    "reread",
    "retried",
    "evicted",
    "rerun_planned",
    "rerun_done",
    "recovered",
    "gave_up",
)


@dataclass(frozen=True)
class Event:
    """One line of the log.

    Attributes:
        kind: what happened, one of ``KINDS``.
        task: the task concerned, or whose value is concerned.
        object: ID of the object; empty: none.
        key: its key.
        rule: by which rule, as file and line; empty: none.
        seconds: duration; None: instantaneous.
        nbytes: number of bytes; None: not applicable.
        text: further details.
        time: seconds since 1970.
        host, pid: where.
    """

    kind: str
    task: str = ""
    pipeline: str = ""
    run: str = ""
    object: str = ""
    key: str = ""
    rule: str = ""
    seconds: float | None = None
    nbytes: int | None = None
    text: str = ""
    time: float = field(default_factory=time.time)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    def to_line(self) -> bytes:
        """Serialize the event."""
        data = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        data["text"] = shorten(self.text, TEXT_MAX_BYTES)
        return json.dumps({"v": FORMAT_VERSION, **data}, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Event | None:
        """Parse a line; None: truncated, or not of a version that this one knows."""
        try:
            data = json.loads(line)
            if not isinstance(data, dict) or data.pop("v") > FORMAT_VERSION:
                return None
            return cls(**data)
        except (ValueError, TypeError, KeyError):
            return None

    def __str__(self) -> str:
        timestamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))
        return f"{timestamp} {self.kind}{self.summary}"

    @property
    def summary(self) -> str:
        """What follows the time and the kind in the line for people, from the separator on."""
        task_path = "/".join(part for part in (self.pipeline, self.task) if part)
        names = "".join(f" {name}" for name in (task_path, self.key or self.object) if name)
        duration = f" in {self.seconds:.3f} s" if self.seconds is not None else ""
        rule_suffix = f" [{self.rule}]" if self.rule else ""
        details = f": {self.text}" if self.text else ""
        return f"{names}{duration}{rule_suffix}{details}"


class EventLog:
    """The log of one scope. Safe for any number of threads and processes.

    A log that cannot be written never stops a task: the error is reported once, on standard error.

    Args:
        scope: the deployment.
        folder: its directory; None: ENTREPOT_EVENTS, else the default below the user's state directory.
        max_bytes: maximum size.
        enabled: whether anything is written.
    """

    def __init__(
        self,
        scope: str,
        folder: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int = DEFAULT_EVENT_BYTES,
        enabled: bool = True,
    ) -> None:
        self.path = log_file(scope, folder)
        self._rotation_bytes = max(4096, max_bytes // 2)
        self._enabled = enabled
        self._error_reported = False
        # How long the next event waits for the lock: not again for a process that already kept it too long. Unguarded:
        # threads that miss a change wait once more, or once less.
        self._lock_seconds = _LOCK_SECONDS
        self._watchers: tuple[Callable[[Event], object], ...] = ()

    def watch(self, watcher: Callable[[Event], object]) -> None:
        """Pass all further events of this process to ``watcher`` too, whether or not the log is written.

        Args:
            watcher: an orchestrator's way to show them, such as the task's log; must not raise.
        """
        self._watchers = (*self._watchers, watcher)

    def add(self, kind: str, *, of: Task | None = None, **fields: Any) -> Event:
        """Write an event, and return it.

        Args:
            kind: what happened.
            of: the task concerned.
            fields: the other fields of :class:`Event`.
        """
        if of is not None:
            fields |= {"task": of.name, "pipeline": of.pipeline, "run": of.run}
        event = Event(kind, **fields)
        if self._enabled:
            try:
                self._append(event.to_line())
            except OSError as error:
                if not self._error_reported:
                    self._error_reported = True
                    print(f"entrepot: events cannot be written to {self.path}: {error}", file=sys.stderr)
        for watcher in self._watchers:
            watcher(event)
        return event

    def _append(self, line: bytes) -> None:
        try:
            file = self._open()
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._open()
        try:
            # Without the lock the line is still whole, because the kernel appends it in one call; only the size limit
            # has to wait for a later event.
            locked = lock_within(file, self._lock_seconds)
            self._lock_seconds = _LOCK_SECONDS if locked else 0.0
            if locked and os.fstat(file).st_size + len(line) > self._rotation_bytes:
                file = self._rotate(file)
            os.write(file, line)
        finally:
            os.close(file)  # releases the lock

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self, file: int) -> int:
        """Start a new file, unless another process did while we waited for the lock."""
        current = os.stat(self.path)
        if (current.st_dev, current.st_ino) == (os.fstat(file).st_dev, os.fstat(file).st_ino):
            os.rename(self.path, older_file(self.path))
        fresh = self._open()
        os.close(file)
        return fresh


def read_events(path: Path, *, older_only: bool = False) -> Iterator[Event]:
    """All events of a log, oldest first; invalid lines are skipped.

    Args:
        path: of the log.
        older_only: only those of the older half, which :func:`follow` omits.
    """
    for file in (older_file(path),) if older_only else (older_file(path), path):
        try:
            lines = file.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        yield from (event for line in lines if (event := Event.from_line(line)) is not None)


class LogTail:
    """Reads what is appended to a log, past its rotations. For one thread at a time.

    Args:
        path: of the log, which need not exist yet.
        newest_bytes: begin this many bytes before the end of the newer half; None: at its beginning.
    """

    def __init__(self, path: Path, newest_bytes: int | None = None) -> None:
        self._path = path
        self._inode = _inode(path)
        self._offset = 0 if newest_bytes is None else max(0, _size(path) - newest_bytes)
        self._skips_first = self._offset > 0  # a line of which only a part is read
        self._rest = b""

    def read(self) -> list[Event]:
        """The events since the last call; invalid lines are skipped.

        Raises:
            OSError: the file cannot be read.
        """
        rotated_data = b""
        if _inode(self._path) != self._inode:
            if self._inode is not None:
                # What was written before the rotation.
                rotated_data, _ = _tail(older_file(self._path), self._offset)
            self._inode, self._offset = _inode(self._path), 0
        new_data, self._offset = _tail(self._path, self._offset)
        *lines, self._rest = (self._rest + rotated_data + new_data).split(b"\n")
        if self._skips_first and lines:
            del lines[0]
            self._skips_first = False
        return [event for line in lines if (event := Event.from_line(line)) is not None]


def follow(path: Path, deadline: float | None = None) -> Iterator[Event | None]:
    """Yield the events of a log's newer half, then new ones; yields None, after a pause, whenever there are none.

    Args:
        path: of the log.
        deadline: ``time.monotonic()`` at which to end; None: never.
    """
    tail = LogTail(path)
    while deadline is None or time.monotonic() < deadline:
        events = tail.read()
        yield from events
        if not events:
            yield None
            time.sleep(FOLLOW_SECONDS)


def log_file(scope: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Path of a scope's log on this host."""
    return Path(folder or default_folder()) / f"{_file_name(scope)}.jsonl"


def default_folder() -> Path:
    """ENTREPOT_EVENTS, or ``entrepot/events`` in the user's state directory."""
    if configured := os.environ.get(VARIABLE):
        return Path(configured)
    from entrepot._daemon.settings import state_folder

    return state_folder() / "events"


def older_file(path: Path) -> Path:
    """Path of the older half of a log."""
    return path.with_name(path.name + _OLDER)


def _file_name(scope: str) -> str:
    from urllib.parse import quote

    return shorten(quote(scope, safe="").replace(".", "%2E"), 200) or "_"


def _tail(path: Path, start: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return b"", start
    return data, start + len(data)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
