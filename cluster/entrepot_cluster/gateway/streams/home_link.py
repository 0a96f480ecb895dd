"""A gateway's link to the home of streams, for the remote ends of this host: requests, and signs of life both ways.

alive ──two requests for a sign of life fail, or one is not answered for ten seconds──▶ failed, and so are its ends
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from entrepot.errors import DirectoryUnavailable, EntrepotError, InstanceLost, StoreUnavailable, Timeout

from entrepot_cluster.gateway.fetcher import describe_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.transport.links import Link
    from entrepot_cluster.transport.peer import PeerConnections

BEAT_SECONDS = 2.0
ANSWER_SECONDS = 10.0  # of a request that the home answers at once, or within two seconds


class RemoteEnd(Protocol):
    """A writer or reader of this host whose stream is at the home."""

    @property
    def token(self) -> str:
        """Names it."""
        ...

    def fail(self, error: EntrepotError) -> None:
        """The home cannot be reached, or has given this end up."""
        ...

    def probe(self) -> None:
        """Ask the daemon here for a sign of life; without one, this gateway gives none either."""
        ...


class HomeLink:
    """Requests to the gateway of a home, and signs of life as long as there are ends. Thread-safe.

    Args:
        instance: the home.
        peer: connections to its gateway.
        directory: says whether it is lost.
        idle: called when there are no ends any more, by the thread that gives signs of life.
    """

    def __init__(
        self, instance: Instance, peer: PeerConnections, directory: DirectoryAccess, idle: Callable[[HomeLink], bool]
    ) -> None:
        self.instance = instance
        self.peer = peer
        self._directory = directory
        self._idle = idle
        self._lock = threading.Lock()
        self._ends: dict[str, RemoteEnd] = {}  # by token; guarded by _lock
        self._held = 0  # by how many that are going to add an end; guarded by _lock
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stream-home-{instance.host}", daemon=True)
        self._thread.start()

    def add(self, end: RemoteEnd) -> None:
        """Give signs of life of this end from now on."""
        with self._lock:
            self._ends[end.token] = end

    def remove(self, end: RemoteEnd) -> None:
        """Give none any more."""
        with self._lock:
            self._ends.pop(end.token, None)

    @property
    def is_used(self) -> bool:
        """Whether it has ends."""
        with self._lock:
            return bool(self._ends or self._held)

    def hold(self) -> None:
        """An end is going to be added, if it can be opened."""
        with self._lock:
            self._held += 1

    def release(self) -> None:
        """It was added, or is not going to be."""
        with self._lock:
            self._held -= 1

    def ask(
        self,
        request: dict[str, Any],
        *,
        timeout: float | None = ANSWER_SECONDS,
        using: Callable[[Link | None], None] | None = None,
    ) -> dict[str, Any]:
        """Make a request.

        Raises:
            InstanceLost, StoreUnavailable: the home cannot be reached.
            EntrepotError: as it answered.
        """
        try:
            return self.peer.stream(request, timeout=timeout, using=using)
        except (Timeout, StoreUnavailable) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: EntrepotError) -> StoreUnavailable:
        """The error for a home that cannot be reached."""
        try:
            for each in self._directory.instances():
                if each.id == self.instance.id and not each.live and not self._directory.may_be_live(each):
                    return InstanceLost(f"the stream was in the store of {describe_lost(each)}: {error}")
        except DirectoryUnavailable:
            pass  # it does not know either
        return StoreUnavailable(
            f"the stream is in the store of host {self.instance.host}, which cannot be reached: {error}"
        )

    def _run(self) -> None:
        failures = 0
        while not self._wake.wait(BEAT_SECONDS):
            with self._lock:
                ends = list(self._ends.values())
            if not ends:
                if self._idle(self):
                    return
                continue
            ends[0].probe()
            request = {"do": "heard", "ends": [end.token for end in ends]}
            try:
                gone = set(self.peer.stream(request, timeout=ANSWER_SECONDS)["gone"])
            except EntrepotError as error:
                failures += 1
                if failures > 1 or isinstance(error, Timeout):
                    failure = self.unreachable(error)
                    for end in ends:
                        end.fail(failure)
                continue
            failures = 0
            for end in ends:
                if end.token in gone and self._has(end):
                    end.fail(
                        StoreUnavailable(
                            f"the gateway of host {self.instance.host} has given up this end of the stream: it was "
                            "restarted, or has had no sign of life of this host's"
                        )
                    )

    def _has(self, end: RemoteEnd) -> bool:
        """Whether an end was not removed while the home was asked about it."""
        with self._lock:
            return end.token in self._ends

    def close(self) -> None:
        """Give no more signs of life."""
        self._wake.set()
