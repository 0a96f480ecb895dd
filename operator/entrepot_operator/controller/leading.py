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
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_io.cluster.objects import lease_path

log = logging.getLogger(__name__)

INSTALLATION = "entrepot.dev/installation"  # an annotation of the Lease


@dataclass(frozen=True)
class Election:
    """Parameters of the election.

    Attributes:
        namespace, name: of the Lease.
        identity: unique to this operator.
        seconds: after which a silent leader is replaced.
        installation: whose replicas compete; a leader of another installation is an error, as two would manage the same
            Stores.

    Raises:
        InvalidArgument: the time is out of range.
    """

    namespace: str
    identity: str
    name: str = "entrepot-operator"
    seconds: float = 15.0
    installation: str = "entrepot"

    def __post_init__(self) -> None:
        if not 2 <= self.seconds <= 3600:
            raise InvalidArgument(f"the lease of the leader lasts from 2 to 3600 seconds, not {self.seconds:g}")

    @property
    def renewed_within(self) -> float:
        """Seconds after a renewal for which a leader considers itself leader: shorter than others wait."""
        return self.seconds * 2 / 3

    @property
    def pause(self) -> float:
        """Seconds between two attempts."""
        return self.seconds / 7.5


class Elector:
    """Holds the Lease if it can, in a thread of its own.

    Args:
        election: which Lease, and for whom.
        api: an exclusive connection with a short timeout.
        changed: called after this operator became, or ceased to be, the leader.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        election: Election,
        api: Api,
        changed: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._election = election
        self._api = api
        self._changed = changed
        self._clock = clock
        self._until = 0.0
        self._led = False
        self._seen: tuple[str, float] | None = None  # version of the Lease held by another, and when it was first seen
        self._problem = ""
        self._foreign = ""  # written by the election's thread, read by the health server's
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def leading(self) -> bool:
        """Whether this operator may act now."""
        return self._clock() < self._until

    @property
    def alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread.is_alive()

    @property
    def foreign(self) -> str:
        """Which other installation manages this namespace, and what to do; empty: none does."""
        return self._foreign

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

    def step(self) -> None:
        """One attempt to acquire or renew the Lease.

        Raises:
            AccessDenied, ClusterRefused, ClusterUnavailable: the Lease cannot be read or written.
        """
        election, begin = self._election, self._clock()
        path = lease_path(election.namespace, election.name)
        try:
            lease = self._api.get(path)
        except ResourceNotFound:
            manifest = self._manifest({}, 0)
            self._write(lambda: self._api.create(lease_path(election.namespace), manifest), begin)
            return
        spec = lease.get("spec") or {}
        holder, version = str(spec.get("holderIdentity") or ""), str(lease["metadata"]["resourceVersion"])
        if holder and holder != election.identity and not self._over(version, spec, begin):
            self._until = 0.0
            self._notice(lease, holder)
            return
        mine = holder == election.identity
        changes = int(spec.get("leaseTransitions") or 0) + (0 if mine else 1)
        manifest = self._manifest(lease, changes)
        if mine and spec.get("acquireTime"):
            manifest["spec"]["acquireTime"] = spec["acquireTime"]
        self._write(lambda: self._api.replace(path, manifest), begin)

    def _notice(self, lease: dict[str, Any], holder: str) -> None:
        """Detect a leader of another installation."""
        election = self._election
        theirs = str((lease["metadata"].get("annotations") or {}).get(INSTALLATION) or election.installation)
        told = ""
        if theirs != election.installation:
            told = (
                f"the namespace {election.namespace} is kept by the installation {theirs!r} ({holder} has the Lease "
                f"{election.name}), and this is {election.installation!r}: an installation has a namespace of its own; "
                "uninstall one of them, or give it another --namespace"
            )
        if told and told != self._foreign:
            log.error("%s", told)
        self._foreign = told

    def _over(self, version: str, spec: dict[str, Any], now: float) -> bool:
        """Whether another's Lease has gone without renewal for its duration, since this version was first seen."""
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] > max(1.0, float(spec.get("leaseDurationSeconds") or 0))

    def _manifest(self, lease: dict[str, Any], changes: int) -> dict[str, Any]:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = {"name": self._election.name, "namespace": self._election.namespace, **(lease.get("metadata") or {})}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), INSTALLATION: self._election.installation}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._election.identity,
                "leaseDurationSeconds": max(1, round(self._election.seconds)),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": changes,
            },
        }

    def _write(self, request: Callable[[], object], begin: float) -> None:
        try:
            request()
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            return  # another was faster; the next attempt sees who
        self._seen = None
        self._foreign = ""
        # From before the request: others count from when they saw it, which is later.
        self._until = begin + self._election.renewed_within

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.step()
                self._problem = ""
            except EntrepotError as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.warning("the lease of the leader cannot be had: %s", error)
            self._tell()
            self._stopped.wait(self._election.pause * random.uniform(0.8, 1.0))
            self._tell()
        self._give_back()
        self._tell()
        self._api.close()

    def _tell(self) -> None:
        leading = self.leading()
        if leading != self._led:
            self._led = leading
            self._changed(leading)

    def _give_back(self) -> None:
        if not self.leading():
            return
        self._until = 0.0
        path = lease_path(self._election.namespace, self._election.name)
        try:
            lease = self._api.get(path)
            if (lease.get("spec") or {}).get("holderIdentity") == self._election.identity:
                lease["spec"].update({"holderIdentity": "", "leaseDurationSeconds": 1})
                self._api.replace(path, lease)
        except EntrepotError as error:
            log.info("the lease of the leader is left to end by itself: %s", error)
