"""Writers and readers that this gateway, the home's, has of its store's streams, in the place of remote ends.

    open ──closed by the remote gateway──▶ closed
      └──no sign of life for ten seconds, this gateway stops──▶ lost: a writer's stream fails; a reader's chunks go back

Requests about one end come one at a time, except for signs of life and ``done``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import CorruptData, EntrepotError, StoreUnavailable, StreamFailed, Timeout
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.receiving import receive
from entrepot_cluster.gateway.streams.chunks import ChunkSink, ChunkWriter, MemberPlaces, at_id
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.transport.peer import PeerConnections

WAIT_SECONDS = 2.0  # after which a request is answered, if only by saying that there is nothing yet
SILENCE_SECONDS = 10.0
_TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a remote end wants.

    Attributes:
        store: a connection to the session of the stream.
        stream: the daemon's number of it.
        name, keep: of the stream.
        host: where the remote end is.
        peer: connections to its gateway.
    """

    store: Store
    stream: int
    name: str
    keep: bool
    host: str
    peer: PeerConnections


class HomeWriter:
    """A writer of the stream. Thread-safe as far as the module says."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._writer = ChunkWriter(attachment.store, attachment.stream, announces=not attachment.keep)
        self._members = MemberPlaces(attachment.store, attachment.name) if attachment.keep else None
        self._appending: _Appending | None = None

    def put(self, oid: bytes, generation: int) -> bool:
        """Fetch a chunk and append it; returns whether it is in the stream, or still waits for room."""
        if self._appending is None:
            sink = ChunkSink(self._attachment.store, self._members or at_id(self._writer.next_id))
            (error,) = receive(self._attachment.peer, [Wanted(oid, generation)], sink)
            if error is not None or sink.target is None:
                raise error or StoreUnavailable("the chunk was not received")
            self._appending = _Appending(self._writer, sink.target)
        return self.wait()

    def wait(self) -> bool:
        """Wait a moment until the chunk is in the stream."""
        appending = self._appending
        if appending is None:
            return True
        if not appending.done.wait(WAIT_SECONDS):
            return False
        self._appending = None
        if appending.error is not None:
            if self._members is not None:
                self._members.start_again()
            raise appending.error
        return True

    def close(self) -> None:
        """The remote writer has written everything."""
        self._writer.close()

    def abort(self, reason: str) -> None:
        """The remote writer has given up, or is lost."""
        self._writer.abort(reason)


class _Appending:
    """A chunk that is being appended, which waits for room in a thread of its own.

    Attributes:
        done: set when it was appended, or was not.
        error: why it was not.
    """

    def __init__(self, writer: ChunkWriter, oid: ObjectID) -> None:
        self.done = threading.Event()
        self.error: EntrepotError | None = None
        threading.Thread(target=self._run, args=(writer, oid), name="stream-append", daemon=True).start()

    def _run(self, writer: ChunkWriter, oid: ObjectID) -> None:
        try:
            writer.append(oid)
        except EntrepotError as error:
            self.error = error
        except BaseException as error:
            self.error = EntrepotError(f"a chunk was not appended: {type(error).__name__}: {error}")
            raise
        finally:
            self.done.set()


class HomeReader:
    """Readers of one group of the stream, as many as the remote one has chunks in hand. Thread-safe."""

    def __init__(self, attachment: Attachment, group: str, late: bool) -> None:
        self._attachment = attachment
        self._group = group
        self._raw = attachment.store._raw()  # pyright: ignore[reportPrivateUsage]
        first, self.missed = self._raw.open_stream_reader(attachment.stream, group, late)
        self._lock = threading.Lock()
        self._free = [first]  # readers without a chunk in hand; guarded by _lock
        self._in_hand: dict[int, int] = {}  # readers by the position of their chunk; guarded by _lock
        self._closed = False  # guarded by _lock

    def next(self) -> dict[str, Any]:
        """Wait a moment for the next chunk: its position, ID, generation, and whether it was redelivered."""
        with self._lock:
            reader = self._free.pop() if self._free else None
        if reader is None:
            reader, _ = self._raw.open_stream_reader(self._attachment.stream, self._group, True)
        try:
            chunk = self._raw.next_chunk(reader, None, WAIT_SECONDS)
        except Timeout:
            self._free_again(reader)
            return {}
        except BaseException:
            self._free_again(reader)
            raise
        if chunk is None:
            self._free_again(reader)
            return {"ended": True}
        position, oid, redelivered, pinned = chunk
        if pinned is not None:
            generation = pinned.generation
        else:
            generation = raw_objects.entry_of(self._attachment.store, ObjectID(oid)).generation
        with self._lock:
            self._in_hand[position] = reader
            closed = self._closed
        if closed:
            self.abort("")
        return {"chunk": [position, oid, generation, redelivered]}

    def done(self, position: int) -> None:
        """The remote reader has consumed this chunk."""
        with self._lock:
            reader = self._in_hand.pop(position, None)
        if reader is not None:
            try:
                self._raw.chunk_done(reader, position)
            finally:
                self._free_again(reader)

    def close(self) -> None:
        """The remote reader reads no more; what it has in hand goes back."""
        self.abort("")

    def abort(self, reason: str) -> None:
        """The same, if it is lost."""
        with self._lock:
            self._closed = True
            readers = [*self._free, *self._in_hand.values()]
            self._free, self._in_hand = [], {}
        for reader in readers:
            self._raw.close_stream_reader(reader)

    def _free_again(self, reader: int) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(reader)
                return
        self._raw.close_stream_reader(reader)


@dataclass(slots=True)
class _End:
    """A remote end: since when nothing was heard of its gateway."""

    end: HomeWriter | HomeReader
    attachment: Attachment
    heard: float


class HomeEnds:
    """The remote ends of this store's streams. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[str, _End] = {}  # by token; guarded by _lock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stream-ends", daemon=True)

    def start(self) -> None:
        """Start to watch for signs of life."""
        self._thread.start()

    def stop(self) -> None:
        """Close all ends: their streams fail, or their chunks go back."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._lose(lambda end: True, "its gateway is being stopped")

    def add(self, token: str, attachment: Attachment, request: dict[str, Any]) -> dict[str, Any]:
        """Open a writer or a reader for a remote end."""
        answer: dict[str, Any] = {}
        end: HomeWriter | HomeReader
        if request["kind"] == "writer":
            end = HomeWriter(attachment)
        else:
            end = HomeReader(attachment, request["group"], request["late"])
            answer["missed"] = end.missed
        with self._lock:
            self._ends[token] = _End(end, attachment, time.monotonic())
        return answer

    def writer(self, token: str) -> HomeWriter:
        """Return a remote writer's end."""
        end = self._get(token)
        if not isinstance(end, HomeWriter):
            raise CorruptData("a gateway has taken a reader of a stream for a writer")
        return end

    def reader(self, token: str) -> HomeReader:
        """Return a remote reader's end."""
        end = self._get(token)
        if not isinstance(end, HomeReader):
            raise CorruptData("a gateway has taken a writer of a stream for a reader")
        return end

    def _get(self, token: str) -> HomeWriter | HomeReader:
        with self._lock:
            remote_end = self._ends.get(token)
            if remote_end is None:
                raise StoreUnavailable(
                    "the gateway has given up this end of the stream: it was restarted, or has had no sign of life of "
                    f"the other gateway for {SILENCE_SECONDS:g} s"
                )
            remote_end.heard = time.monotonic()
            return remote_end.end

    def remove(self, token: str, reason: str | None) -> None:
        """Close an end; with a reason, abort it. No effect if it is gone.

        Raises:
            StreamFailed: the stream has failed, so that this writer's close does not count.
        """
        with self._lock:
            removed = self._ends.pop(token, None)
        if removed is None:
            if reason is None:
                raise StreamFailed("this end of the stream was given up before it was closed")
        elif reason is None:
            removed.end.close()
        else:
            removed.end.abort(f"on host {removed.attachment.host}, {reason}")

    def heard(self, tokens: list[str]) -> list[str]:
        """Note a sign of life of these ends; return those that are gone.

        Also asks the daemon for one: if it does not respond, neither does this.
        """
        gone = []
        asked = False
        for token in tokens:
            with self._lock:
                remote_end = self._ends.get(token)
            if remote_end is None:
                gone.append(token)
                continue
            if not asked:
                asked = True
                probe(remote_end.attachment.store, remote_end.attachment.stream)
            remote_end.heard = time.monotonic()
        return gone

    def _watch(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            before = time.monotonic() - SILENCE_SECONDS
            self._lose(
                lambda end, before=before: end.heard < before,  # type: ignore[misc]
                f"its gateway has not given a sign of life for {SILENCE_SECONDS:g} s",
            )

    def _lose(self, is_lost: Callable[[_End], bool], why: str) -> None:
        with self._lock:
            tokens = [token for token, end in self._ends.items() if is_lost(end)]
            lost = [self._ends.pop(token) for token in tokens]
        for each in lost:
            each.end.abort(f"it is on host {each.attachment.host}: {why}")


def probe(store: Store, stream: int) -> None:
    """Ask the daemon for a sign of life: it answers about a stream, whatever that answer is."""
    try:
        store._raw().stream_state(stream)  # pyright: ignore[reportPrivateUsage]
    except EntrepotError:
        return
