"""What other gateways ask the home of a stream, and what they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot import inventory
from entrepot._streams.stream import Stream, StreamArguments
from entrepot.errors import CorruptData, EntrepotError, InvalidArgument, NotSealed, Timeout

from entrepot_cluster.gateway.fetcher import LOOKUP_IDS
from entrepot_cluster.gateway.streams.home_ends import Attachment, HomeEnds
from entrepot_cluster.gateway.streams.homes import StreamHomes, StreamKey

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.ids import ObjectID

    from entrepot_cluster.directory.model import Found, Place
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.session_stores import SessionStores

PUBLISHED_SECONDS = 30.0


class HomeRequests:
    """Answers requests about streams of this store. Thread-safe.

    Args:
        instance: this store's.
        homes: which of them this store is the home of.
        ends: writers and readers of the remote ends.
        sessions, directory, peers, publication: the gateway's parts.
    """

    def __init__(
        self,
        instance: str,
        homes: StreamHomes,
        ends: HomeEnds,
        sessions: SessionStores,
        directory: DirectoryAccess,
        peers: Peers,
        publication: Publication,
    ) -> None:
        self._instance = instance
        self._homes = homes
        self._ends = ends
        self._sessions = sessions
        self._directory = directory
        self._peers = peers
        self._publication = publication
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "open": self._open,
            "state": self._state,
            "seal": self._seal,
            "remove": self._remove,
            "attach": self._attach,
            "put": lambda request: {"done": ends.writer(request["end"]).put(request["oid"], request["generation"])},
            "wait": lambda request: {"done": ends.writer(request["end"]).wait()},
            "next": lambda request: ends.reader(request["end"]).next(),
            "done": lambda request: ends.reader(request["end"]).done(request["position"]),
            "close": lambda request: ends.remove(request["end"], request["reason"]),
            "heard": lambda request: {"gone": ends.heard(request["ends"])},
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of another gateway.

        Raises:
            EntrepotError: the answer is this error.
        """
        operation = self._operations.get(str(request.get("do")))
        if operation is None:
            raise InvalidArgument(f"this gateway knows no request {request.get('do')!r} about streams: it is older")
        try:
            return operation(request) or {}
        except EntrepotError:
            raise
        except (KeyError, TypeError) as error:
            raise CorruptData(f"a request about a stream cannot be understood: {error!r}") from error

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open a stream here, or say where its home is instead."""
        key = _key(request)
        arguments = StreamArguments.from_checked(request)
        while True:
            home = self._homes.find(key, create=arguments.create or arguments.replace, replace=arguments.replace)
            if home is not None:
                return {"instead": home.id}
            stream = Stream(self._store(request), key.name, arguments)
            if self._homes.is_home(key):  # it was not removed meanwhile
                break
        return {
            "stream": stream.number,
            "capacity": stream.capacity,
            "capacity_bytes": stream.capacity_bytes or 0,
            "writers": stream.writers,
            "keep": stream.keep,
        }

    def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        ended, appended, _ = (
            self._store(request)
            ._raw()
            .stream_state(  # pyright: ignore[reportPrivateUsage]
                request["stream"]
            )
        )
        return {"ended": ended, "appended": appended}

    def _seal(self, request: dict[str, Any]) -> None:
        """Make a collection of its chunks, and publish it."""
        state, name = self._state(request), request["name"]
        if not state["ended"]:
            raise NotSealed(f"the writers of stream {name!r} have not all closed: seal it when they have")
        sealed = self._store(request).collection(name).seal(state["appended"])
        self._publication.publish(sealed.id.binary)
        self._wait_until_published(inventory.members(self._store(request), sealed.id))

    def _wait_until_published(self, members: list[ObjectID]) -> None:
        """Wait until other stores can find the members, which are published with the collection, many at a time."""
        end = time.monotonic() + PUBLISHED_SECONDS
        for begin in range(0, len(members), LOOKUP_IDS):
            part = [member.binary for member in members[begin : begin + LOOKUP_IDS]]
            while not all(self._is_published(places) for places in self._directory.get().places(part)):
                if time.monotonic() > end:
                    raise Timeout(
                        f"the collection was sealed, but its members were not published in {PUBLISHED_SECONDS:g} s: "
                        "others will be able to read it when the directory has them"
                    )
                time.sleep(0.05)

    def _is_published(self, places: Found[Place]) -> bool:
        return any(place.instance.id == self._instance for place in places.entries)

    def _remove(self, request: dict[str, Any]) -> None:
        key, store = _key(request), self._store(request)
        self._homes.forget(key)
        store._raw().remove_stream(store._session_number, key.name)  # pyright: ignore[reportPrivateUsage]

    def _attach(self, request: dict[str, Any]) -> dict[str, Any]:
        peer = self._peers.at(request["address"], request["instance"])
        attachment = Attachment(
            self._store(request), request["stream"], request["name"], request["keep"], request["host"], peer
        )
        return self._ends.add(request["end"], attachment, request)

    def _store(self, request: dict[str, Any]) -> Store:
        return self._sessions.get(request["scope"], request["session"])


def _key(request: dict[str, Any]) -> StreamKey:
    return StreamKey(request["scope"], request["session"], request["name"])
