"""What this store's clients ask about streams of the cluster (``entrepot._streams.relays``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError, InstanceLost, StoreUnavailable, VersionMismatch

from entrepot_cluster.gateway.fetcher import find_instance
from entrepot_cluster.gateway.streams.home_link import HomeLink
from entrepot_cluster.gateway.streams.homes import StreamHomes, StreamKey
from entrepot_cluster.gateway.streams.remote_ends import Relayed
from entrepot_cluster.gateway.streams.remote_reader import RemoteReader
from entrepot_cluster.gateway.streams.remote_writer import RemoteWriter

if TYPE_CHECKING:
    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.session_stores import SessionStores

_ATTEMPTS = 5  # while homes change
_HOME_SECONDS = 60.0  # for a request that makes the home do something
_STREAM = ("scope", "session", "name", "stream")


class StreamCalls:
    """Answers calls about streams. Thread-safe.

    Args:
        homes: finds them.
        sessions, directory, peers: the gateway's parts.
        own: this store's instance, its host, and the address where other gateways reach this one.
    """

    def __init__(
        self,
        homes: StreamHomes,
        sessions: SessionStores,
        directory: DirectoryAccess,
        peers: Peers,
        own: tuple[str, str, str],
    ) -> None:
        self._homes = homes
        self._sessions = sessions
        self._directory = directory
        self._peers = peers
        self._instance, self._host, self._address = own
        self._lock = threading.Lock()
        self._links: dict[str, HomeLink] = {}  # by instance; guarded by _lock
        self._ends: dict[str, RemoteReader | RemoteWriter] = {}  # by token; guarded by _lock
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "attach": self._attach,
            "known": self._is_known,
            "forget": self._forget,
            "state": self._pass_on,
            "seal": self._pass_on,
            "remove": self._pass_on,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one call; an error is part of the answer, because not all of them have a number in the daemon."""
        operation = self._operations.get(request["do"])
        try:
            if operation is None:
                raise VersionMismatch(f"this store's gateway is older than the client, and does not know {request!r}")
            return operation(request)
        except EntrepotError as error:
            return {"error": [error.code, error.message]}

    def close(self) -> None:
        """Fail all remote ends."""
        with self._lock:
            ends, links = list(self._ends.values()), list(self._links.values())
        for end in ends:
            end.fail(StoreUnavailable("the gateway of this host is being stopped"))
        for link in links:
            link.close()

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Find the home of a stream, and open the stream there."""
        key = StreamKey(request["scope"], request["session"], request["name"])
        replaces = request["how"] == 2
        home = self._homes.find(key, create=request["how"] != 0, replace=replaces)
        for _ in range(_ATTEMPTS):
            if home is None:
                return {"here": True, "record": key.record_id.binary}
            opened = self._ask(home, request)
            if "instead" not in opened:
                fields = [opened[each] for each in ("capacity", "capacity_bytes", "writers", "keep")]
                return {"here": False, "home": [home.id, home.host, opened["stream"], key.name, *fields]}
            home = None if opened["instead"] == self._instance else self._instance_of(opened["instead"])
        raise StoreUnavailable(f"the home of stream {key.name!r} changes all the time: try again")

    def _is_known(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            return {"known": request["end"] in self._ends}

    def _forget(self, request: dict[str, Any]) -> dict[str, Any]:
        self._homes.forget(StreamKey(request["scope"], request["session"], request["name"]))
        return {}

    def _pass_on(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._ask(self._instance_of(request["home"]), request)

    def _attach(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open a writer or a reader at the home, for a process and its relays."""
        return self._at_home(self._instance_of(request["home"]), lambda home: self._attach_to(home, request))

    def _attach_to(self, home: Instance, request: dict[str, Any]) -> dict[str, Any]:
        where: dict[str, Any] = {each: request[each] for each in _STREAM}
        asked: dict[str, Any] = {
            each: request[each] for each in ("end", "kind", "keep", "group", "late") if each in request
        }
        own: dict[str, Any] = {"instance": self._instance, "host": self._host, "address": self._address}
        link = self._link(home)
        try:
            answer = link.ask({"do": "attach", **where, **asked, **own})
            try:
                relayed = Relayed(
                    self._sessions.get(request["scope"], request["session"]),
                    request["end"],
                    request["to"],
                    request["from"],
                    request["name"],
                    where,
                )
                end = RemoteWriter(relayed, link) if request["kind"] == "writer" else RemoteReader(relayed, link)
            except BaseException as error:
                link.ask({"do": "close", "end": request["end"], "reason": f"its relays could not be opened: {error}"})
                raise
            with self._lock:
                self._ends[end.token] = end
            link.add(end)
        finally:
            link.release()
        serve = end.start_serving()
        threading.Thread(target=self._serve, args=(end, serve), name="stream-end", daemon=True).start()
        return answer

    def _serve(self, end: RemoteReader | RemoteWriter, serve: Callable[[], None]) -> None:
        try:
            serve()
        finally:
            with self._lock:
                self._ends.pop(end.token, None)

    def _link(self, instance: Instance) -> HomeLink:
        """Return the link to a home, held until it is released."""
        peer = self._peers.get(instance)
        with self._lock:
            link = self._links.get(instance.id)
            if link is None or link.peer is not peer:
                link = self._links[instance.id] = HomeLink(instance, peer, self._directory, self._is_idle)
            link.hold()
            return link

    def _is_idle(self, link: HomeLink) -> bool:
        """Drop a link that has no ends; whether that was done."""
        with self._lock:
            if link.is_used:
                return False
            if self._links.get(link.instance.id) is link:
                del self._links[link.instance.id]
            return True

    def _ask(self, home: Instance, request: dict[str, Any]) -> dict[str, Any]:
        return self._at_home(home, lambda each: self._peers.get(each).stream(request, timeout=_HOME_SECONDS))

    def _at_home(self, home: Instance, ask: Callable[[Instance], dict[str, Any]]) -> dict[str, Any]:
        """Ask a home something; once more, if its gateway was restarted at another address since."""
        try:
            return ask(home)
        except InstanceLost:
            raise
        except StoreUnavailable as error:
            moved = find_instance(
                self._directory, lambda each: each.id == home.id and each.live and each.addresses != home.addresses
            )
            if moved is not None:
                return ask(moved)
            raise StoreUnavailable(
                f"the stream is in the store of host {home.host}, which cannot be reached: {error}"
            ) from error

    def _instance_of(self, instance: str) -> Instance:
        home = find_instance(self._directory, lambda each: each.id == instance)
        if home is None:
            raise InstanceLost(f"the store that had the stream, instance {instance}, is not in the cluster any more")
        return home
