"""A copy of a directory's resources that is as new as it has to be.

A copy alone would lag behind. What makes it exact is the head, whose version each change increases after it was made:
whoever reads the head's version from the API server, and waits until the copy has seen the head at that version, sees
all changes that had ended before. This relies on the API server to send the changes of a kind in the order of their
versions, which are those of its etcd.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping

from entrepot.errors import DirectoryUnavailable, EntrepotError

from entrepot_operator.directory.leases import lease_of
from entrepot_operator.directory.requests import Changed, Requests, tries, unavailable
from entrepot_operator.directory.shards import Head, head_manifest, head_name, parse_head, selector, shard_path
from entrepot_operator.directory.view import LeaseView, ShardView
from entrepot_operator.kubernetes.informer import Informer, WatchTarget

MAX_PAUSE_SECONDS = 1.0  # between attempts to follow the resources
LAG_SECONDS = 1.0  # a copy that lags longer is read again as a whole
_STOP_SECONDS = 5.0
_log = logging.getLogger(__name__)


class DirectoryCopy:
    """Keeps a directory's shards and leases by informers, and reads the head. For any number of threads.

    Args:
        requests: to the API server.
        namespace: where the resources are.
        name: the cluster's name.
        timeout: seconds for the copy to become as new as a response.

    Attributes:
        shards, leases: the copy.
        changed: notified of its changes.
    """

    def __init__(self, requests: Requests, namespace: str, name: str, timeout: float) -> None:
        self._requests = requests
        self._namespace = namespace
        self._name = name
        self._timeout = timeout
        self.changed = threading.Condition()
        self.shards = ShardView(name, self.changed)
        self.leases = LeaseView(name, self.changed)
        labels = selector(name)
        shard_target = WatchTarget("directory", shard_path(namespace), labels, custom_resource=True)
        lease_target = WatchTarget("directory-leases", lease_of(namespace, name), labels)
        self._informers = [
            Informer(shard_target, requests.connect, self.shards, self._report, MAX_PAUSE_SECONDS),
            Informer(lease_target, requests.connect, self.leases, self._report, MAX_PAUSE_SECONDS),
        ]
        for informer in self._informers:
            informer.start()

    def close(self) -> None:
        """End the informers."""
        for informer in self._informers:
            informer.stop()
        for informer in self._informers:
            informer.join(_STOP_SECONDS)

    def read_head(self) -> Head:
        """Read the head from the API server; a directory without one is empty, and gets one."""
        path = shard_path(self._namespace, head_name(self._name))
        for _ in tries(f"the head of directory {self._name!r}"):
            resource = self._requests.get(path)
            if resource is not None:
                return parse_head(resource)
            manifest = head_manifest(self._name, secrets.token_hex(8))
            try:
                return parse_head(self._requests.create(shard_path(self._namespace), manifest))
            except Changed:
                continue
        raise AssertionError  # tries() raises

    def touch(self) -> int:
        """Increase the head's version, and return it."""
        path = shard_path(self._namespace, head_name(self._name))
        for _ in tries(f"the head of directory {self._name!r}"):
            try:
                step = {"op": "replace", "path": "/spec/nonce", "value": secrets.token_hex(8)}
                return parse_head(self._requests.patch(path, [step])).version
            except Changed:  # there is none, or many others touch it at the same time
                self.read_head()
        raise AssertionError  # tries() raises

    def catch_up(self) -> None:
        """Wait until the copy shows all changes that ended before this call.

        Raises:
            DirectoryUnavailable: the API server cannot be reached, or the copy does not become new enough in time.
            AccessDenied: the directory may not be read.
        """
        informer = self._informers[0]
        seen = self.shards.head()
        head = self.read_head()
        if seen is not None and seen.uid == head.uid and seen.version > head.version:
            # Seen before, and newer than what there is now: the server has other data, such as those of a backup.
            self.shards.invalidate()
            informer.read_again()
        if self.shards.reached(head):
            return
        seconds = min(LAG_SECONDS, self._timeout / 2) if informer.synced else self._timeout
        if self.shards.wait_until(lambda: self.shards.reached(head) or self._refused(), seconds):
            self._raise_refusal()
            return
        informer.read_again()
        if not self.shards.wait_until(lambda: self.shards.reached(head), self._timeout - seconds):
            problem = informer.problem
            raise DirectoryUnavailable(
                f"the directory in Kubernetes did not show the changes up to version {head.version} within "
                f"{self._timeout:g} s: {problem or 'the watch of DirectoryShards lags behind'}"
            )

    def wait_for(self, versions: Mapping[str, int]) -> None:
        """Wait, not for long, until the copy shows shards at versions or later ones."""
        self.shards.wait_until(
            lambda: all(self.shards.version_of(name) >= version for name, version in versions.items()), LAG_SECONDS
        )

    def _refused(self) -> bool:
        problem = self._informers[0].problem
        return problem is not None and not isinstance(unavailable(problem), DirectoryUnavailable)

    def _raise_refusal(self) -> None:
        problem = self._informers[0].problem
        if problem is not None and self._refused():
            raise problem

    def _report(self, what: str, error: EntrepotError) -> None:
        _log.warning("%s of directory %r cannot be followed, which is tried again: %s", what, self._name, error)
        with self.changed:
            self.changed.notify_all()
