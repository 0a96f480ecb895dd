"""Requests of the directory to the API server: from any number of threads, each within the directory's timeout."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from entrepot.errors import DirectoryUnavailable, EntrepotError

from entrepot_operator.directory.server_clock import ServerClock
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ClusterUnavailable, ResourceNotFound
from entrepot_operator.kubernetes.locations import INSTALL_COMMAND
from entrepot_operator.placement.names import GROUP

Manifest = dict[str, Any]
T = TypeVar("T")
TRIES = 20  # of a change that finds its resource changed by somebody else
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5


class Changed(Exception):
    """A resource has changed since it was read, exists already, or exists no longer."""


class Requests:
    """Sends requests; each thread that does so at the same time has a connection of its own.

    Errors of connection are DirectoryUnavailable; AccessDenied is raised as it is.

    Args:
        credentials: of the cluster.
        timeout: seconds for one request.
    """

    def __init__(self, credentials: ClusterCredentials, timeout: float) -> None:
        self.server = credentials.server
        self.clock = ServerClock()
        self._credentials = credentials
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[Api] = []  # guarded by _lock
        self._closed = False  # guarded by _lock

    def connect(self) -> Api:
        """Open a connection that belongs to the caller, such as that of a watch."""
        return Api(self._credentials, patience=0, request_seconds=self._timeout, note_date=self.clock.note)

    def get(self, path: str) -> Manifest | None:
        """Read a resource; None: there is none."""
        with self._borrowed() as api:
            try:
                return api.get(path)
            except ResourceNotFound:
                return None

    def read_all(self, path: str, labels: str) -> list[Manifest]:
        """Read the resources with these labels as they are now."""
        with self._borrowed() as api:
            return api.read_all(path, labels=labels)

    def create(self, path: str, manifest: Mapping[str, Any]) -> Manifest:
        """Create a resource in a collection; raises Changed if there is one of that name."""
        with self._borrowed() as api:
            try:
                return api.create(path, manifest)
            except ResourceNotFound as error:
                raise DirectoryUnavailable(
                    f"the directory in Kubernetes cannot be written: {error}; the namespace has to exist, and the "
                    f"resources of {GROUP} have to be installed: {INSTALL_COMMAND}"
                ) from error
            except ClusterRefused as error:
                if error.status == CONFLICT:
                    raise Changed(str(error)) from error
                raise

    def replace(self, path: str, manifest: Mapping[str, Any]) -> Manifest:
        """Replace a resource; raises Changed unless it still has the manifest's ``resourceVersion``."""
        return self._change(lambda api: api.replace(path, manifest))

    def patch(self, path: str, steps: Sequence[Mapping[str, Any]]) -> Manifest:
        """Change a resource by a JSON patch; raises Changed if there is none, or many others change it now."""
        return self._change(lambda api: api.json_patch(path, steps))

    def delete(self, path: str, version: str) -> None:
        """Delete a resource if it still has this version, else raise Changed; no-op if there is none."""
        self._change(lambda api: api.delete(path, version=version))

    def close(self) -> None:
        """Close all connections; later requests raise DirectoryUnavailable."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for api in idle:
            api.close()

    def _change(self, send: Callable[[Api], T]) -> T:
        with self._borrowed() as api:
            try:
                return send(api)
            except ResourceNotFound as error:
                raise Changed(str(error)) from error
            except ClusterRefused as error:
                if error.status == CONFLICT:
                    raise Changed(str(error)) from error
                raise

    @contextmanager
    def _borrowed(self) -> Iterator[Api]:
        with self._lock:
            if self._closed:
                raise DirectoryUnavailable("the directory was closed by close(): open it again")
            api = self._idle.pop() if self._idle else None
        api = api or self.connect()
        try:
            yield api
        except (ClusterUnavailable, ClusterRefused) as error:
            raise unavailable(error) from error
        finally:
            with self._lock:
                keep = not self._closed
                if keep:
                    self._idle.append(api)
            if not keep:
                api.close()


def unavailable(error: EntrepotError) -> EntrepotError:
    """What a failure of the API server means to users of the directory."""
    if isinstance(error, (ClusterUnavailable, ClusterRefused)):
        return DirectoryUnavailable(f"the directory in Kubernetes cannot be used: {error}")
    return error


def tries(what: str) -> Iterator[int]:
    """Count the tries of a change, with growing pauses between them.

    Args:
        what: is changed; for the message.

    Raises:
        DirectoryUnavailable: the last try has failed as well.
    """
    pause = _FIRST_PAUSE_SECONDS
    for number in range(TRIES):
        if number:
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        yield number
    raise DirectoryUnavailable(
        f"the directory in Kubernetes is busy: in each of {TRIES} tries, somebody else changed {what} at the same time"
    )
