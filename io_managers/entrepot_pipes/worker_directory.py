"""The worker directory: where the exporters and importers of a pipe find each other. It is made of streams and names.

Each end of a pipe has a stream without chunks, of which each worker is a writer. That tells everybody when a worker
dies, because then the stream fails, and when all are done, because then it has ended. Beside it, each worker has a
named record, which the other end waits for. A worker's rank is the order in which it came; with M exporters and N
importers, exporter ``r`` writes to importer ``r mod N``, so that spare importers have nothing to read, and the rows of
spare exporters are merged into the others'.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from entrepot import Store, Stream
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, StreamFailed, StreamLost, Timeout

from entrepot_pipes.names import PipeName
from entrepot_pipes.registration_lock import registration_lock

Role = Literal["export", "import"]
Form = Literal["columns", "text"]

PREFIX = "entrepot.pipes/"
_ENDS: dict[Role, str] = {"export": "exporter", "import": "importer"}
_WATCH_SECONDS = 0.5  # how often somebody who waits looks whether the others are alive
_RETRY_SECONDS = 0.02


@dataclass(frozen=True)
class Record:
    """What a worker says about itself. ``dialect`` is that of :class:`Dialect`, as a dictionary."""

    workers: int
    form: Form
    pid: int
    program: str
    since: float  # seconds since 1970
    dialect: dict[str, Any] | None = None
    verify: int = 0  # how many rows are to be compared


def record_of(
    pipe: PipeName, form: Form, dialect: dict[str, Any] | None, pid: int | None, program: str | None, verify: int = 0
) -> Record:
    """The record of this process, or of the one for which it works."""
    own = " ".join([os.path.basename(sys.argv[0] or sys.executable), *sys.argv[1:3]])
    return Record(pipe.workers, form, pid or os.getpid(), (program or own)[:200], time.time(), dialect, verify)


def other(role: Role) -> Role:
    """The other end."""
    return "import" if role == "export" else "export"


def workers_phrase(role: Role, count: int) -> str:
    """``an importer``, or ``3 importers``."""
    return f"an {_ENDS[role]}" if count == 1 else f"{count} {_ENDS[role]}s"


class Membership:
    """One worker of one end of a pipe, from its registration on. Created by :func:`join`; for one thread at a time.

    States::

        registered ──finish──▶ done
            └──fail, end of the process──▶ failed: so is its end of the pipe, for everybody
    """

    def __init__(self, store: Store, pipe: PipeName, role: Role, stream: Stream, record: Record) -> None:
        self.store = store
        self.pipe = pipe
        self.role: Role = role
        self.record = record
        self._presence = stream
        self._writer = stream.writer()
        self._cancelled = ""  # why; set by another thread, in one step
        self._opposite: Stream | None = None  # the other end's stream, once one of its workers is known
        self.rank = _first_free_rank(store, pipe, role)
        try:
            store.put(asdict(record), name=record_name(pipe, role, self.rank))
        except BaseException:
            self._writer.abort("it could not register")
            raise

    def wait_for(self, rank: int, deadline: float) -> Record:
        """The record of a worker of the other end, when it has come.

        Raises:
            Timeout: it did not come in time.
            StreamFailed: a worker of either end has failed.
        """
        name = record_name(self.pipe, other(self.role), rank)
        while True:
            remaining = deadline - time.monotonic()
            try:
                values = self.store.get_by_name(name, timeout=max(0.0, min(_WATCH_SECONDS, remaining)), remote=False)
            except (Timeout, ObjectNotFound):
                self.check()
                if remaining <= 0:
                    raise self.nobody_came(rank) from None
                continue
            if self._opposite is None:
                self._opposite = self.store.stream(
                    stream_name(self.pipe, other(self.role)), create=False, cluster=False
                )
            self.check()
            return Record(**values)

    def has_come(self, rank: int) -> bool:
        """Whether this worker of the other end has registered."""
        return _is_bound(self.store, record_name(self.pipe, other(self.role), rank))

    def nobody_came(self, rank: int) -> Timeout:
        """The error that says whom this worker waited for in vain."""
        waited = time.time() - self.record.since
        missing = _ENDS[other(self.role)]
        which = f"{missing} {rank + 1}" if rank else f"an {missing}"
        return Timeout(
            f"pipe {self.pipe.key}: nobody came within {waited:.0f} s: {_ENDS[self.role]} {self.rank + 1} (process "
            f"{self.record.pid}, {self.record.program}) waited for {which}. Start the other program with the same name "
            "and query and in the same store ('entrepot pipe ls' shows who waits), or raise ENTREPOT_PIPE_TIMEOUT"
        )

    def cancel(self, reason: str) -> None:
        """Let whatever this worker waits for raise ``StreamFailed`` soon; called by another thread."""
        self._cancelled = reason

    def check(self) -> None:
        """Raise if a worker of either end died or gave up, or if this one was cancelled.

        Raises:
            StreamFailed, StreamLost: so it is.
        """
        if self._cancelled:
            raise StreamFailed(f"pipe {self.pipe.key}: {self._cancelled}")
        try:
            _ = self._presence.ended
            if self._opposite is not None:
                _ = self._opposite.ended
        except StreamLost:
            raise
        except StreamFailed as error:
            raise self.explained(error) from error
        if self._opposite is None:
            state = _streams(self.store, self.pipe).get(_suffix(other(self.role)))
            if state is not None and state["state"] == "failed":
                raise _failed(self.pipe, other(self.role), state)

    def explained(self, error: StreamFailed) -> StreamFailed:
        """``error`` of any stream of the pipe, with what the worker directory knows about its cause."""
        if self._cancelled:
            return error
        states = _streams(self.store, self.pipe)
        for role in (other(self.role), self.role):
            state = states.get(_suffix(role))
            if state is not None and state["state"] == "failed":
                return _failed(self.pipe, role, state)
        return type(error)(f"pipe {self.pipe.key}: {error}")

    def cause_of(self, error: BaseException) -> BaseException:
        """What an end raises for an error: its cause, as far as the worker directory knows it, or the error itself."""
        if isinstance(error, StreamFailed) and not isinstance(error, StreamLost):
            with suppress(EntrepotError):  # the store is away: then the error has to do
                return self.explained(error)
        return error

    def finish(self) -> None:
        """This worker has done everything; the last one of the pipe removes it."""
        # The other end has all it needs by now, and may have removed the pipe.
        with suppress(StreamFailed):
            self._writer.close()
        with registration_lock(self.store.address):
            if self._is_over("ended"):
                _reset(self.store, self.pipe)

    def fail(self, reason: str) -> None:
        """Tell everybody at this pipe that this worker gave up, and why. Harmless after :meth:`finish`."""
        if self._writer.closed:
            return
        self._writer.abort(reason)
        with suppress(EntrepotError), registration_lock(self.store.address):
            if self._is_over("failed"):
                _reset(self.store, self.pipe)

    def _is_over(self, own_state: str) -> bool:
        """Whether nobody is at the pipe any more, and the next worker that comes begins a new transfer."""
        states = _streams(self.store, self.pipe)
        own, opposite = states.get(_suffix(self.role)), states.get(_suffix(other(self.role)))
        if own is None or opposite is None or own["state"] != own_state or opposite["state"] != "ended":
            return False
        return self._is_ours()

    def _is_ours(self) -> bool:
        """Whether the stream of this name is still the one in which this worker registered."""
        try:
            current = self.store.stream(stream_name(self.pipe, self.role), create=False, cluster=False)
        except EntrepotError:
            return False
        return current.number == self._presence.number


def join(store: Store, pipe: PipeName, role: Role, record: Record, deadline: float) -> Membership:
    """Register a worker, waiting while an earlier transfer of the name and query is not over.

    Raises:
        Timeout: the earlier transfer did not end in time.
        StreamFailed: the other end came before, and failed.
        InvalidArgument: another worker of this end has given another number of workers.
    """
    pause = _RETRY_SECONDS / 10
    while True:
        with registration_lock(store.address):
            membership = _try_join(store, pipe, role, record)
        if membership is not None:
            return membership
        if time.monotonic() >= deadline:
            raise Timeout(
                f"pipe {pipe.key}: {workers_phrase(role, record.workers)} had come before, and that transfer did not "
                "end in time. Give each transfer a query of its own (?query=...), say workers=N if several processes "
                "or files make up this end, or look who is there with 'entrepot pipe ls'"
            )
        time.sleep(pause)
        pause = min(2 * pause, _RETRY_SECONDS)


def _try_join(store: Store, pipe: PipeName, role: Role, record: Record) -> Membership | None:
    states = _streams(store, pipe)
    own, opposite = states.get(_suffix(role)), states.get(_suffix(other(role)))
    if own is not None and own["state"] == "failed":  # everybody there has been told
        _reset(store, pipe)
        own = None
    elif opposite is not None and opposite["state"] == "failed":
        if own is None:
            _reset(store, pipe)  # the next one begins anew
        raise _failed(pipe, other(role), opposite)
    if own is not None:
        if own["writers"] != record.workers:
            raise InvalidArgument(
                f"pipe {pipe.key}: another {_ENDS[role]} says workers={own['writers']}, this one "
                f"workers={record.workers}: all workers of one end give the same number"
            )
        if own["writers_open"] + own["writers_closed"] >= own["writers"]:
            return None
    stream = store.stream(stream_name(pipe, role), writers=record.workers, capacity=1, cluster=False)
    return Membership(store, pipe, role, stream, record)


def exists(store: Store, pipe: PipeName) -> bool:
    """Whether an exporter is registered at a pipe."""
    state = _streams(store, pipe).get(_suffix("export"))
    return state is not None and state["state"] != "failed"


def list_pipes(store: Store) -> Iterator[tuple[str, Role, int, Record, str]]:
    """All workers of the session's pipes: pipe, role, rank, record, and the state of its end, or why that failed."""
    values: dict[str, dict[str, dict[str, Any]]] = {}
    for key, suffix, state in _session_streams(store):
        values.setdefault(key, {})[suffix] = state
    roles: tuple[Role, Role] = ("export", "import")
    records = {name: info.id for info in store.list(PREFIX + "*") for name in info.names if name.startswith(PREFIX)}
    for name in sorted(records):
        key, _, rest = name.removeprefix(PREFIX).rpartition("#")
        for role in roles:
            word, _, rank = rest.partition(".")
            state = values.get(key, {}).get(_suffix(role), {})
            if word != role or not state:
                continue
            with suppress(ObjectNotFound):  # removed meanwhile
                record = Record(**store.get(records[name]))
                yield key, role, int(rank), record, state["failure"] or state["state"]


def stream_name(pipe: PipeName, role: Role) -> str:
    """The stream of which the workers of one end are writers."""
    return f"{PREFIX}{pipe.key}#{_suffix(role)}"


def data_name(pipe: PipeName, rank: int) -> str:
    """The stream that an importer reads."""
    return f"{PREFIX}{pipe.key}#data.{rank}"


def record_name(pipe: PipeName, role: Role, rank: int) -> str:
    """The name of a worker's record."""
    return f"{PREFIX}{pipe.key}#{role}.{rank}"


def _suffix(role: Role) -> str:
    return _ENDS[role] + "s"


def _failed(pipe: PipeName, role: Role, state: dict[str, Any]) -> StreamFailed:
    return StreamFailed(f"pipe {pipe.key}: an {_ENDS[role]} failed: {state['failure']}")


def _session_streams(store: Store) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for state in store.status()["streams"]:
        if (
            state["name"].startswith(PREFIX)
            and state["scope"] == store.scope
            and state["session_name"] == store.session_name
        ):
            key, _, suffix = state["name"].removeprefix(PREFIX).rpartition("#")
            yield key, suffix, state


def _streams(store: Store, pipe: PipeName) -> dict[str, dict[str, Any]]:
    return {suffix: state for key, suffix, state in _session_streams(store) if key == pipe.key}


def _is_bound(store: Store, name: str) -> bool:
    try:
        store.resolve(name, remote=False)
    except ObjectNotFound:
        return False
    return True


def _first_free_rank(store: Store, pipe: PipeName, role: Role) -> int:
    rank = 0
    while _is_bound(store, record_name(pipe, role, rank)):
        rank += 1
    return rank


def _reset(store: Store, pipe: PipeName) -> None:
    """Remove everything of a pipe. Called with the registration lock held."""
    for suffix in _streams(store, pipe):
        with suppress(ObjectNotFound):
            store.stream(f"{PREFIX}{pipe.key}#{suffix}", create=False, cluster=False).remove()
    for info in store.list(glob.escape(f"{PREFIX}{pipe.key}#") + "*"):
        store.delete(info.id)
