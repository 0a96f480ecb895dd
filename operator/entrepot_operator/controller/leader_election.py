"""Leader election by a Lease. Each replica measures time only by its own clock."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_operator.kubernetes.objects import lease_path

log = logging.getLogger(__name__)

INSTALLATION_ANNOTATION = "entrepot.dev/installation"  # an annotation of the Lease


@dataclass(frozen=True)
class ElectionConfig:
    """Parameters of the election.

    Attributes:
        namespace, name: of the Lease.
        identity: unique to this operator.
        lease_seconds: after which a silent leader is replaced.
        installation: whose replicas compete; a leader of another installation is an error, as two would manage the same
            Stores.

    Raises:
        InvalidArgument: the time is out of range.
    """

    namespace: str
    identity: str
    name: str = "entrepot-operator"
    lease_seconds: float = 15.0
    installation: str = "entrepot"

    def __post_init__(self) -> None:
        if not 2 <= self.lease_seconds <= 3600:
            raise InvalidArgument(f"the leader lease must last between 2 and 3600 seconds, not {self.lease_seconds:g}")

    @property
    def renew_deadline_seconds(self) -> float:
        """Seconds after a renewal for which a leader considers itself leader: shorter than others wait."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """Seconds between two attempts."""
        return self.lease_seconds / 7.5


class LeaderElector:
    """Holds the Lease if it can, in a thread of its own.

    Args:
        config: which Lease, and for whom.
        api: an exclusive connection with a short timeout.
        on_change: called after this operator became, or ceased to be, the leader.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: ElectionConfig,
        api: Api,
        on_change: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._api = api
        self._on_change = on_change
        self._clock = clock
        self._leader_until = 0.0
        self._was_leading = False
        # Version of the Lease held by another, and when it was first seen.
        self._observed_lease: tuple[str, float] | None = None
        self._last_error = ""
        self._foreign_installation = ""  # written by the election's thread, read by the health server's
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def leading(self) -> bool:
        """Whether this operator may act now."""
        return self._clock() < self._leader_until

    @property
    def alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread.is_alive()

    @property
    def foreign_installation(self) -> str:
        """Message about another installation that manages this namespace, with the remedy; empty: there is none."""
        return self._foreign_installation

    def now(self) -> datetime:
        """Current time by the API server's clock."""
        return self._api.now()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop, and release the Lease, so that another replica need not wait for its expiry."""
        self._stopped.set()
        self._thread.join(seconds)

    def try_acquire(self) -> None:
        """One attempt to acquire or renew the Lease.

        Raises:
            AccessDenied, ClusterRefused, ClusterUnavailable: the Lease cannot be read or written.
        """
        config, begin = self._config, self._clock()
        path = lease_path(config.namespace, config.name)
        try:
            lease = self._api.get(path)
        except ResourceNotFound:
            manifest = self._manifest({}, 0)
            self._write(lambda: self._api.create(lease_path(config.namespace), manifest), begin)
            return
        spec = lease.get("spec") or {}
        holder, version = str(spec.get("holderIdentity") or ""), str(lease["metadata"]["resourceVersion"])
        if holder and holder != config.identity and not self._is_expired(version, spec, begin):
            self._leader_until = 0.0
            self._check_installation(lease, holder)
            return
        mine = holder == config.identity
        transitions = int(spec.get("leaseTransitions") or 0) + (0 if mine else 1)
        manifest = self._manifest(lease, transitions)
        if mine and spec.get("acquireTime"):
            manifest["spec"]["acquireTime"] = spec["acquireTime"]
        self._write(lambda: self._api.replace(path, manifest), begin)

    def _check_installation(self, lease: dict[str, Any], holder: str) -> None:
        """Detect a leader of another installation."""
        config = self._config
        theirs = str((lease["metadata"].get("annotations") or {}).get(INSTALLATION_ANNOTATION) or config.installation)
        message = ""
        if theirs != config.installation:
            message = (
                f"namespace {config.namespace} is already managed by installation {theirs!r} ({holder} holds the "
                f"Lease {config.name}), but this is {config.installation!r}: each installation needs its own "
                "namespace; uninstall one of them, or set another --namespace"
            )
        if message and message != self._foreign_installation:
            log.error("%s", message)
        self._foreign_installation = message

    def _is_expired(self, version: str, spec: dict[str, Any], now: float) -> bool:
        """Whether another's Lease has gone without renewal for its duration, since this version was first seen."""
        if self._observed_lease is None or self._observed_lease[0] != version:
            self._observed_lease = (version, now)
        return now - self._observed_lease[1] > max(1.0, float(spec.get("leaseDurationSeconds") or 0))

    def _manifest(self, lease: dict[str, Any], transitions: int) -> dict[str, Any]:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = {"name": self._config.name, "namespace": self._config.namespace, **(lease.get("metadata") or {})}
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            INSTALLATION_ANNOTATION: self._config.installation,
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._config.identity,
                "leaseDurationSeconds": max(1, round(self._config.lease_seconds)),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _write(self, request: Callable[[], object], begin: float) -> None:
        try:
            request()
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            return  # another was faster; the next attempt sees who
        self._observed_lease = None
        self._foreign_installation = ""
        # From before the request: others count from when they saw it, which is later.
        self._leader_until = begin + self._config.renew_deadline_seconds

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.try_acquire()
                self._last_error = ""
            except EntrepotError as error:
                if str(error) != self._last_error:
                    self._last_error = str(error)
                    log.warning("cannot acquire or renew the leader lease: %s", error)
            self._notify()
            self._stopped.wait(self._config.retry_seconds * random.uniform(0.8, 1.0))
            self._notify()
        self._release()
        self._notify()
        self._api.close()

    def _notify(self) -> None:
        leading = self.leading()
        if leading != self._was_leading:
            self._was_leading = leading
            self._on_change(leading)

    def _release(self) -> None:
        if not self.leading():
            return
        self._leader_until = 0.0
        path = lease_path(self._config.namespace, self._config.name)
        try:
            lease = self._api.get(path)
            if (lease.get("spec") or {}).get("holderIdentity") == self._config.identity:
                lease["spec"].update({"holderIdentity": "", "leaseDurationSeconds": 1})
                self._api.replace(path, lease)
        except EntrepotError as error:
            log.info("cannot release the leader lease, it will expire: %s", error)
