"""A reader of this host, whose stream is at another store.

One thread follows what the process asks for and reports as consumed; another one gets chunks from the home::

    no chunk asked for ──NEXT, or the process is quick──▶ asked at home ──▶ fetched into the relay ──ACK──▶ done at home

A process that asks for a chunk soon after it got the one before is quick: then the chunk after it is fetched while the
process works. Others get a chunk only when they ask for it, so that they do not keep it from other readers.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from entrepot._streams.relays import ACK, CHUNK, NEXT
from entrepot.errors import EntrepotError, ObjectLost, ObjectNotFound, StoreFull, StoreUnavailable, Timeout
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.receiving import receive
from entrepot_cluster.gateway.streams.chunks import ChunkSink, at_id
from entrepot_cluster.gateway.streams.home_ends import WAIT_SECONDS
from entrepot_cluster.gateway.streams.home_link import ANSWER_SECONDS
from entrepot_cluster.gateway.streams.remote_ends import ProcessGone, Relayed, RemoteEnd
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot_cluster.gateway.streams.home_link import HomeLink

QUICK_SECONDS = 0.2

_log = logging.getLogger(__name__)


class RemoteReader(RemoteEnd):
    """Gets chunks for the process. The relay has at most two of them."""

    def __init__(self, relayed: Relayed, link: HomeLink) -> None:
        super().__init__(relayed, link)
        self._changed = threading.Condition()
        self._asked = 0  # chunks that the process has asked for; guarded by _changed
        self._passed_on = 0  # chunks that are, or were, in the relay; guarded by _changed
        self._is_quick = False  # guarded by _changed
        self._moved_at = 0.0  # when the process last got something to do; guarded by _changed
        self._closing = False  # guarded by _changed
        self._receiver = threading.Thread(target=self._receive_all, name="stream-receive", daemon=True)

    def start_serving(self) -> Callable[[], None]:
        """Return what a thread of its own runs."""
        return lambda: self.run(self._follow)

    def _failed(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- the thread that follows the process

    def _follow(self) -> None:
        self._receiver.start()
        try:
            while (message := self.next_of_process(even_failed=True)) is not None:
                self._obey(*self._store.get(ObjectID(message[0]), remote=False))
        finally:
            self._stop_receiving()
        self._close_at_home(None)

    def _obey(self, kind: str, consumed: int | None) -> None:
        assert kind in (NEXT, ACK), kind
        if consumed is not None:
            try:
                self._link.ask({"do": "done", "end": self.token, "position": consumed}, timeout=ANSWER_SECONDS)
            except EntrepotError as error:
                self.fail(error)  # the other thread tells the process
        if kind == NEXT:
            now = time.monotonic()
            with self._changed:
                self._is_quick = consumed is not None and now - self._moved_at < QUICK_SECONDS
                self._moved_at = now
                self._asked += 1
                self._changed.notify_all()

    def _stop_receiving(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.interrupt()
        self._receiver.join()

    # --- the thread that gets chunks

    def _receive_all(self) -> None:
        try:
            while self._wait_until_wanted():
                answer = self.ask({"do": "next"}, WAIT_SECONDS + ANSWER_SECONDS)
                if "ended" in answer:
                    self._to_process.close()
                    return
                if "chunk" in answer:
                    self._pass_on(*answer["chunk"])
        except ProcessGone:
            return
        except EntrepotError as error:
            self._give_up(error)
        except Exception as error:
            _log.exception("a remote reader of stream %r failed", self._relayed.stream)
            self._give_up(EntrepotError(f"the gateway failed: {type(error).__name__}: {error}; see its log"))

    def _wait_until_wanted(self) -> bool:
        """Wait until a chunk is to be got; False: never again."""
        with self._changed:
            while True:
                if self._closing:
                    return False
                self.check()
                if self._passed_on < self._asked + (1 if self._is_quick else 0):
                    return True
                self._changed.wait(WAIT_SECONDS)

    def _pass_on(self, position: int, oid: bytes, generation: int, redelivered: bool) -> None:
        target = self._to_process.next_id

        def fetch_chunk() -> None:
            sink = ChunkSink(self._store, at_id(target))
            (error,) = receive(self._link.peer, [Wanted(oid, generation)], sink)
            if error is not None:
                raise error

        try:
            self.retry_while_full(fetch_chunk, StoreFull)
        except (ObjectNotFound, ObjectLost):
            self.ask({"do": "state", **self._relayed.where}, ANSWER_SECONDS)  # a stream that failed has no chunks
            raise
        except (Timeout, StoreUnavailable) as error:
            raise self._link.unreachable(error) from error
        self.tell([CHUNK, position, redelivered])
        self._to_process.append(target)
        with self._changed:
            self._passed_on += 1
            if self._passed_on == self._asked:
                self._moved_at = time.monotonic()

    def _give_up(self, error: EntrepotError) -> None:
        with self._changed:
            if self._closing:
                return
        self.tell_error(error)
        self._close_at_home(error.message)
