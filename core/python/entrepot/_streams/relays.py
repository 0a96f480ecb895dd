"""How a process reaches a stream whose home is another store: through its gateway, over two relays.

A relay is an ordinary stream of this store, so the daemon notices the death of whoever is at its other end, and chunks
are passed on where they lie. One leads from the process to the gateway, the other back::

    writer ──chunks──▶ gateway ──▶ the home's gateway, which writes to the stream
       ◀──DONE, CLOSED, ERROR──┘
    reader ──NEXT, ACK──▶ gateway ──▶ the home's gateway, which reads from the stream
       ◀──CHUNK and the chunk itself, ERROR──┘
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot._client import gateway_calls
from entrepot._client.arguments import NAME_MAX_BYTES
from entrepot._streams.stream import Stream, StreamArguments
from entrepot._streams.writer import StreamWriter
from entrepot.errors import BY_CODE, CorruptData, EntrepotError, StoreUnavailable, StreamFailed, StreamLost, Timeout
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._streams.store_access import StreamStore
    from entrepot.codec import CopyMode

DONE = "done"  # a chunk is in the stream
CLOSED = "closed"  # the writer has been closed
ERROR = "error"  # code and message: the end is of no use any more
CHUNK = "chunk"  # position, whether it was redelivered; the chunk follows
NEXT = "next"  # position of what has been consumed, or None
ACK = "ack"  # position of what has been consumed

GATEWAY = "gateway"  # the group of the relay that leads to the gateway
PROCESS = "process"  # the group of the one that leads back
MESSAGES = 64  # in a relay
CHECK_SECONDS = 5.0  # without a message, before the gateway is asked whether it is there
ANSWER_SECONDS = 1.0  # a gateway that has not responded for ten seconds is refused by the daemon
SEND_SECONDS = 15.0  # longer than that
CLOSE_SECONDS = 1.0  # as the daemon gets for a reader that is closed


class Home(NamedTuple):
    """A stream in another store.

    Attributes:
        instance, host: of that store.
        stream: its number there.
        name, capacity, capacity_bytes, writers, keep: of the stream.
    """

    instance: str
    host: str
    stream: int
    name: str
    capacity: int
    capacity_bytes: int
    writers: int
    keep: bool


def ask(store: StreamStore, request: dict[str, Any], timeout: float = 0) -> dict[str, Any]:
    """Make a call about streams to the gateway.

    Args:
        store: the session.
        request: what to do; scope and session are added.
        timeout: in seconds; 0: none. A gateway that does not respond for ten seconds is given up in any case.

    Raises:
        EntrepotError: as the gateway answered; StoreUnavailable: there is none.
    """
    request = {"scope": store.scope, "session": store.session_name, **request}
    answer = gateway_calls.call(store._raw(), gateway_calls.STREAM, request, timeout)
    if not isinstance(answer, dict):
        raise CorruptData(f"the gateway's answer about a stream cannot be read: {answer!r}")
    error = answer.get("error")
    if error is not None:
        raise to_error(*error)
    return answer


def to_error(code: str, message: str) -> EntrepotError:
    """An error that travelled as its code and message."""
    return BY_CODE.get(code, EntrepotError)(message)


def window(home: Home) -> int:
    """How many chunks a remote writer may have on their way, beside those that are in the stream."""
    return 1 if home.capacity_bytes else min(home.capacity, 4)


class MemberRelay(StreamWriter):
    """Writes chunks that the home keeps as members of a collection: each with the description that members have."""

    def __init__(self, store: StreamStore, name: str, stream: int, collection: str) -> None:
        super().__init__(store, name, stream, keep=False)
        self._describing = store.collection(collection)

    def _new_item(self, value: Any, oid: ObjectID) -> _core.Item:
        return self._describing.describe(value, oid)


class Relays:
    """The two relays of one writer or reader, and its gateway at their other ends.

    ::

        open ──close──▶ closed
          └──the gateway has ended, does not respond, or says that the stream cannot be reached──▶ failed

    Args:
        store: the session.
        home: the stream.
        request: what the gateway is to open there.
        capacity: of the relay that leads to the gateway.

    Raises:
        EntrepotError: it could not be opened.

    Attributes:
        outgoing: leads to the gateway.
        incoming: leads back.
        answer: what the gateway answered.
    """

    def __init__(self, store: StreamStore, home: Home, request: dict[str, Any], capacity: int) -> None:
        self._store = store
        self._home = home
        self._token = ObjectID.random().binary.hex()[:16]
        self._heard = time.monotonic()
        self._failure: EntrepotError | None = None
        suffix = f"@{home.host[:60]}#{self._token}"
        room = NAME_MAX_BYTES - len(suffix.encode()) - len(".to")
        label = home.name.encode()[:room].decode(errors="ignore") + suffix
        to_gateway = _relay(store, f"{label}.to", capacity, GATEWAY)
        try:
            from_gateway = _relay(store, f"{label}.from", MESSAGES, PROCESS)
        except BaseException:
            to_gateway.remove()
            raise
        try:
            self.incoming = from_gateway.reader(PROCESS)
            is_member = request["kind"] == "writer" and home.keep
            self.outgoing: StreamWriter = (
                MemberRelay(store, to_gateway.name, to_gateway.number, home.name) if is_member else to_gateway.writer()
            )
            self.answer = ask(
                store,
                {
                    "do": "attach",
                    "end": self._token,
                    "home": home.instance,
                    "stream": home.stream,
                    "name": home.name,
                    "keep": home.keep,
                    "to": to_gateway.name,
                    "from": from_gateway.name,
                    **request,
                },
            )
        except BaseException:
            for relay in (to_gateway, from_gateway):
                relay.remove()
            raise

    def send(self, message: list[Any]) -> None:
        """Send the gateway a message.

        Raises:
            StoreUnavailable: the gateway has ended, or does not respond.
            EntrepotError: as for :meth:`receive`.
        """
        self.check()
        try:
            self.outgoing.put(message, timeout=SEND_SECONDS)
        except Timeout as error:
            raise self._failed(self._unavailable(f"it has not responded for {SEND_SECONDS:g} s")) from error
        except StreamLost:
            raise
        except StreamFailed as error:
            raise self._failed(self._unavailable(error.message)) from error

    def receive(self, deadline: float) -> list[Any]:
        """Wait for a message; as :meth:`take`.

        Raises:
            EntrepotError: also what the gateway sent instead.
        """
        message: list[Any] = self.take(deadline)
        if message[0] == ERROR:
            raise self._failed(to_error(message[1], message[2]))
        return message

    def take(self, deadline: float, copy: CopyMode = "never") -> Any:
        """Wait for what the gateway puts next.

        Raises:
            StreamEnded: the gateway puts nothing any more.
            Timeout: nothing has come before the deadline, in the time of ``time.monotonic``.
            StoreUnavailable: the gateway has ended, or does not respond.
            StreamLost: the daemon was restarted.
        """
        self.check()
        while True:
            wait = min(max(deadline - time.monotonic(), 0.0), CHECK_SECONDS)
            try:
                value = self.incoming.get(timeout=wait, copy=copy)
            except Timeout:
                if time.monotonic() - self._heard >= CHECK_SECONDS - 0.5:
                    self._check_gateway()
                if time.monotonic() >= deadline:
                    raise
            except StreamLost:
                raise
            except StreamFailed as error:
                raise self._failed(self._unavailable(error.message)) from error
            else:
                self._heard = time.monotonic()
                return value

    def check(self) -> None:
        """Raise the error that this end has failed with."""
        if self._failure is not None:
            raise type(self._failure)(self._failure.message)

    def close(self) -> None:
        """Close the relay that leads back; what was received last has been read."""
        with suppress(EntrepotError):  # the relay is gone, or has failed
            self.incoming.ack()
        self.incoming.close()

    def wait_until_closed(self) -> None:
        """Wait a moment until the gateway has closed its end at home; what it puts until then is not read."""
        deadline = time.monotonic() + CLOSE_SECONDS
        raw, done = self._store._raw(), self.incoming._in_hand
        try:
            while True:
                wait = max(deadline - time.monotonic(), 0.0)
                chunk = raw.next_chunk(self.incoming._checked_number(), done, wait)
                if chunk is None:
                    return
                done = chunk[0]
        except EntrepotError:
            return  # the relays have been removed, or it takes longer

    def _check_gateway(self) -> None:
        try:
            is_known = ask(self._store, {"do": "known", "end": self._token}, ANSWER_SECONDS)["known"]
        except Timeout:
            return  # it may be busy; the daemon knows when it has been silent for too long
        except StoreUnavailable as error:
            raise self._failed(self._unavailable(error.message)) from error
        if not is_known:
            raise self._failed(self._unavailable("it was restarted"))
        self._heard = time.monotonic()

    def _failed(self, error: EntrepotError) -> EntrepotError:
        self._failure = error
        return error

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"stream {self._home.name!r} of host {self._home.host} cannot be reached any more through the gateway of "
            f"this host: {why}"
        )


def _relay(store: StreamStore, name: str, capacity: int, group: str) -> Stream:
    return Stream(store, name, StreamArguments(capacity=capacity, writers=1, groups=[group], keep=False))
