"""Informer: reads a collection of the cluster's API, then follows every change, forever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from entrepot.errors import EntrepotError

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import ListExpired, ResourceNotFound
from entrepot_operator.kubernetes.locations import diagnose_missing_crds

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 15.0
MIN_WATCH_SECONDS = 1.0  # if a watch ends sooner, pause before the next

Resource = Mapping[str, Any]


class Sink(Protocol):
    """Receives what is read. Each sink is called by one thread."""

    def put(self, resources: Iterable[Resource]) -> None:
        """Replace everything. Iterating may raise; then it is called again later."""

    def change(self, resource: Resource, *, gone: bool) -> None:
        """One resource that was added, changed or removed."""


@dataclass(frozen=True)
class WatchTarget:
    """Resources to watch.

    Attributes:
        name: for display, such as ``"stores"``.
        path: in the API.
        labels, fields: selectors.
        custom_resource: whether our CRDs define its kind.
    """

    name: str
    path: str
    labels: str = ""
    fields: str = ""
    custom_resource: bool = False


class Informer:
    """Follows one collection in a thread of its own.

    Args:
        target: what to follow.
        connect: creates a connection for this informer's exclusive use.
        sink: receives what is read.
        report_error: receives errors, once for each new one.
        max_pause: seconds before the next attempt after several that failed.
    """

    def __init__(
        self,
        target: WatchTarget,
        connect: Callable[[], Api],
        sink: Sink,
        report_error: Callable[[str, EntrepotError], None],
        max_pause: float = MAX_PAUSE_SECONDS,
    ) -> None:
        self.target = target
        self._max_pause = max_pause
        self._connect = connect
        self._sink = sink
        self._report_error = report_error
        self._api: Api | None = None
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._outdated = threading.Event()
        self._connected_since: float | None = None
        self._problem: EntrepotError | None = None
        self._restarts = 0
        self._thread = threading.Thread(target=self._run, name=f"watch-{target.name}", daemon=True)

    @property
    def synced(self) -> bool:
        """Whether all of it was read at least once."""
        return self._synced.is_set()

    @property
    def problem(self) -> EntrepotError | None:
        """The error that keeps it from following its resources; None: there is none, or none is known yet."""
        return self._problem

    @property
    def restarts(self) -> int:
        """Number of times that everything was listed again."""
        return self._restarts

    @property
    def alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread.is_alive()

    def connected_for(self) -> float:
        """Seconds for which it has been followed without a gap; 0: it is not."""
        connected_since = self._connected_since
        return 0.0 if connected_since is None else time.monotonic() - connected_since

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end; aborts the current read."""
        self._stopped.set()
        api = self._api
        if api is not None:
            api.abort()

    def read_again(self) -> None:
        """Request that everything is read again: what was followed is known to be incomplete."""
        self._outdated.set()
        api = self._api
        if api is not None:
            api.cut_watch()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        self._api = api = self._connect()
        pause, version = FIRST_PAUSE_SECONDS, ""
        while not self._stopped.is_set():
            begin = time.monotonic()
            try:
                if self._outdated.is_set():
                    version = ""
                    self._outdated.clear()
                    self._restarts += 1
                version = version or self._list(api)
                for new_version in self._watch(api, version):
                    version = new_version
                    pause = FIRST_PAUSE_SECONDS
                    if self._outdated.is_set():
                        break
                if self._outdated.is_set():
                    continue
                if time.monotonic() - begin > MIN_WATCH_SECONDS:
                    continue  # the server ends watches from time to time
            except ListExpired:
                version = ""
                self._restarts += 1
            except EntrepotError as error:
                self._record_problem(api, error)
            self._connected_since = None
            if not self._outdated.is_set():
                self._stopped.wait(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, self._max_pause)
        api.close()

    def _list(self, api: Api) -> str:
        version = ""

        def resources() -> Iterator[Resource]:
            nonlocal version
            for page in api.iter_pages(self.target.path, labels=self.target.labels, fields=self.target.fields):
                version = str(page["metadata"].get("resourceVersion") or "")
                yield from page["items"]

        self._sink.put(resources())
        self._synced.set()
        return version

    def _watch(self, api: Api, version: str) -> Iterator[str]:
        """Follow changes from a version on; yields the version after each change."""
        target = self.target
        for kind, resource in api.watch(target.path, version, labels=target.labels, fields=target.fields):
            self._mark_connected()
            if kind != "BOOKMARK":
                self._sink.change(resource, gone=kind == "DELETED")
            yield str(resource["metadata"]["resourceVersion"])

    def _mark_connected(self) -> None:
        self._problem = None
        if self._connected_since is None:
            self._connected_since = time.monotonic()

    def _record_problem(self, api: Api, error: EntrepotError) -> None:
        if self._stopped.is_set():
            return
        if self.target.custom_resource and isinstance(error, ResourceNotFound):
            try:
                error = diagnose_missing_crds(api)
            except EntrepotError as other:
                error = other
        previous, self._problem = self._problem, error
        if previous is None or str(previous) != str(error):
            self._report_error(self.target.name, error)
