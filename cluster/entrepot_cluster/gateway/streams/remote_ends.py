"""What remote writers and remote readers of this host have in common: two relays to their process, and a home."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot._streams.relays import ERROR, GATEWAY
from entrepot.errors import EntrepotError, ObjectNotFound, StreamFailed, Timeout

from entrepot_cluster.gateway.streams.chunks import ChunkWriter
from entrepot_cluster.gateway.streams.home_ends import WAIT_SECONDS, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot import Store

    from entrepot_cluster.gateway.streams.home_link import HomeLink
    from entrepot_cluster.transport.links import Link

LAST_WORDS_SECONDS = 10.0  # for a process to read the last message
FULL_SECONDS = 30.0  # for memory, as for a put

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Relayed:
    """The ends of a process's relays that are the gateway's.

    Attributes:
        store: a connection to the session of the process.
        token: names the remote end.
        to_gateway, from_gateway: names of the relays.
        stream: name of the stream that they lead to.
        where: scope, session, name and number of the stream at its home.
    """

    store: Store
    token: str
    to_gateway: str
    from_gateway: str
    stream: str
    where: dict[str, Any]


class ProcessGone(Exception):
    """The process has ended, or given up.

    Args:
        error: the relay's, which says why.
    """

    def __init__(self, error: StreamFailed) -> None:
        text = error.message
        super().__init__(text.partition(" failed: ")[2] or text)


class RemoteEnd:
    """One remote end, served by threads of its own until the process has closed it, or is gone.

    ::

        attached ──the process closes it, gives up, ends──▶ over: its relays are removed
           └──fail(), the home refuses──▶ failed: the process is told ──the same──▶ over

    Args:
        relayed: the relays.
        link: to the home, where it has been opened.

    Attributes:
        token: names it.
    """

    def __init__(self, relayed: Relayed, link: HomeLink) -> None:
        self.token = relayed.token
        self._relayed = relayed
        self._store = relayed.store
        self._raw = relayed.store._raw()  # pyright: ignore[reportPrivateUsage]
        self._link = link
        self._lock = threading.Lock()
        self._failure: EntrepotError | None = None  # guarded by _lock
        self._connection: Link | None = None  # of the request that is running; guarded by _lock
        self._done: int | None = None  # position in the relay of what was received and not reported as done yet
        to_gateway = relayed.store.stream(relayed.to_gateway, create=False, cluster=False)
        from_gateway = relayed.store.stream(relayed.from_gateway, create=False, cluster=False)
        self._stream, self._stream_back = to_gateway.number, from_gateway.number
        self._reader, _ = self._raw.open_stream_reader(self._stream, GATEWAY, False)
        self._to_process = ChunkWriter(relayed.store, from_gateway.number)

    # --- called by the link

    def fail(self, error: EntrepotError) -> None:
        """See :class:`~entrepot_cluster.gateway.streams.home_link.RemoteEnd`."""
        with self._lock:
            self._failure = self._failure or error
            connection = self._connection
        if connection is not None:
            connection.interrupt()
        self._failed()

    def probe(self) -> None:
        """See :class:`~entrepot_cluster.gateway.streams.home_link.RemoteEnd`."""
        probe(self._store, self._stream)

    def _failed(self) -> None:
        """Wake threads that wait for something else."""

    # --- of the threads of the end

    def check(self) -> None:
        """Raise the error that it has failed with."""
        with self._lock:
            if self._failure is not None:
                raise self._failure

    def ask(self, request: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Make a request to the home about this end, which :meth:`fail` interrupts."""
        try:
            return self._link.ask({"end": self.token, **request}, timeout=timeout, using=self._use)
        except EntrepotError:
            self.check()  # if that was why
            raise

    def _use(self, connection: Link | None) -> None:
        with self._lock:
            self._connection = connection
            failed = self._failure is not None
        if failed and connection is not None:
            connection.interrupt()

    def next_of_process(self, *, even_failed: bool = False) -> tuple[bytes, int | None] | None:
        """Wait for the next chunk of the process, and report the one before as done.

        Args:
            even_failed: whether to go on when this end has failed.

        Returns:
            its ID and generation; None: the process has closed its end.

        Raises:
            ProcessGone: it has ended or given up.
            EntrepotError: this end has failed.
        """
        while True:
            if not even_failed:
                self.check()
            done, self._done = self._done, None
            try:
                chunk = self._raw.next_chunk(self._reader, done, WAIT_SECONDS)
            except Timeout:
                continue
            except StreamFailed as error:
                raise ProcessGone(error) from error
            if chunk is None:
                return None
            self._done, oid, _, pinned = chunk
            return oid, None if pinned is None else pinned.generation

    def report_done(self) -> None:
        """Report the chunk of the process as done, which frees its room in the relay."""
        done, self._done = self._done, None
        if done is not None:
            try:
                self._raw.chunk_done(self._reader, done)
            except StreamFailed as error:
                raise ProcessGone(error) from error

    def check_process(self) -> None:
        """Raise ProcessGone if the process has ended or given up."""
        try:
            self._raw.stream_state(self._stream)
        except StreamFailed as error:
            raise ProcessGone(error) from error

    def tell(self, message: Any) -> None:
        """Put a message for the process."""
        self._to_process.put(message)

    def retry_while_full(self, attempt: Callable[[], Any], is_full: type[EntrepotError]) -> Any:
        """Repeat what fails for want of memory, for as long as a put would wait for it."""
        end = time.monotonic() + FULL_SECONDS
        while True:
            try:
                return attempt()
            except is_full:
                self.check()
                self.check_process()
                if time.monotonic() > end:
                    raise

    def run(self, serve: Callable[[], None]) -> None:
        """Serve the process until it is gone; the home learns why, and so does the process."""
        try:
            reason = self._serve(serve)
            if reason is not None:
                self._close_at_home(reason)
        except Exception:
            _log.exception("a remote end of stream %r failed", self._relayed.stream)
        finally:
            self._link.remove(self)
            self._remove_relays()

    def _serve(self, serve: Callable[[], None]) -> str | None:
        """Serve the process; returns the reason with which the end is aborted at home, None: it was closed."""
        try:
            serve()
        except ProcessGone as gone:
            return str(gone)
        except EntrepotError as error:
            self._report(error)
        except Exception as error:
            _log.exception("a remote end of stream %r failed", self._relayed.stream)
            self._report(EntrepotError(f"the gateway failed: {type(error).__name__}: {error}; see its log"))
        else:
            return None
        return "its gateway could not go on"

    def _report(self, error: EntrepotError) -> None:
        """Tell the process, abort at home, which may take a while, and wait until the process has gone."""
        self.tell_error(error)
        self._close_at_home(error.message)
        with suppress(EntrepotError):  # it has gone
            while self._raw.next_chunk(self._reader, self._done, float("inf")) is not None:
                self._done = None

    def tell_error(self, error: EntrepotError) -> None:
        """Tell the process why its end is of no use any more."""
        try:
            self.tell([ERROR, error.code, error.message])
            self._to_process.close()
        except EntrepotError as failure:
            _log.info("a process could not be told about stream %r: %s: %s", self._relayed.stream, error, failure)

    def _close_at_home(self, reason: str | None) -> None:
        self._link.remove(self)
        try:
            self._link.ask({"do": "close", "end": self.token, "reason": reason})
        except EntrepotError as error:
            _log.info("a remote end of stream %r could not be aborted at home: %s", self._relayed.stream, error)

    def wait_until_read(self) -> None:
        """Wait until the process has read the last message."""
        end, pause = time.monotonic() + LAST_WORDS_SECONDS, 0.001
        try:
            while self._raw.stream_state(self._stream_back)[2] and time.monotonic() < end:
                time.sleep(pause)
                pause = min(2 * pause, 0.1)
        except EntrepotError:
            return

    def _remove_relays(self) -> None:
        session = self._store._session_number  # pyright: ignore[reportPrivateUsage]
        self._raw.close_stream_reader(self._reader)
        for name in (self._relayed.to_gateway, self._relayed.from_gateway):
            try:
                self._raw.remove_stream(session, name)
            except ObjectNotFound:
                continue  # its session has ended
            except EntrepotError as error:
                _log.warning("the relay %r was not removed: %s", name, error)
        self._to_process.abort("it is over")
