"""The instance's registration in the directory: its lease is the sign of life that the other hosts go by.

out ──register──▶ in ──forgotten──▶ out
 └──────────┬─────┘
            └──superseded by another gateway of this store, another store──▶ over
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from entrepot.errors import DirectoryUnavailable, EntrepotError, InstanceLost, InvalidArgument, VersionMismatch

from entrepot_cluster.directory.errors import ClusterMismatch, InstanceForgotten, InstanceSuperseded
from entrepot_cluster.gateway.fetcher import describe_lost

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.directory.registration import Registration
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.publication import Publication

RETRY_SECONDS = 1.0
HANG_SECONDS = 1.0  # a directory that takes longer to fail makes nobody else wait
# Errors after which a gateway does not go on
FINAL = (ClusterMismatch, InstanceLost, InstanceSuperseded, InvalidArgument, VersionMismatch)
SWEEP_SECONDS = 60.0
PROTOCOL = 1  # of gateways

_log = logging.getLogger(__name__)


class Membership:
    """Keeps the instance registered, and follows which others there are, each from a thread of its own.

    Args:
        store: a connection to the store, in any session.
        host: its name in the directory.
        addresses: where other gateways reach this one.
        lease_seconds: how long after the last sign of life the instance counts as lost.
        directory: of the cluster.
        publication: is told of each registration.
        peers: connections to instances that are lost are closed there.
        give_up: called with the reason, once, if the gateway cannot go on.
    """

    def __init__(
        self,
        store: Store,
        host: str,
        addresses: tuple[str, ...],
        lease_seconds: float,
        directory: DirectoryAccess,
        publication: Publication,
        peers: Peers,
        give_up: Callable[[EntrepotError], None],
    ) -> None:
        self._store = store
        self._host = host
        self._addresses = addresses
        self._lease_seconds = lease_seconds
        self._directory = directory
        self._publication = publication
        self._peers = peers
        self._give_up = give_up
        self._started_at = time.time()
        self._stopping = threading.Event()
        self._registration: Registration | None = None  # set by the thread
        self._instance = store.instance_id
        self._threads = [
            threading.Thread(target=self._run, name="membership", daemon=True),
            threading.Thread(target=self._watch, name="instances", daemon=True),
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, depart: bool) -> None:
        """End the threads; with ``depart``, leave the cluster in an orderly way."""
        self._stopping.set()
        self._publication.stop_waiting()
        if self._threads[0].is_alive():
            self._threads[0].join()
        if depart:
            self.leave()

    def leave(self) -> None:
        """Leave the cluster in an orderly way, if the instance is registered and has not left."""
        registration = self._registration
        if registration is not None:
            with suppress(EntrepotError):  # then the lease ends
                registration.depart()

    def _run(self) -> None:
        reachable = True
        next_sweep = time.monotonic() + SWEEP_SECONDS
        while not self._stopping.is_set():
            wait, began = self._lease_seconds / 3, time.monotonic()
            try:
                self._renew()
                self._directory.responds()
                if not reachable:
                    _log.info("the cluster's directory responds again")
                reachable = True
                if time.monotonic() > next_sweep:
                    self._directory.get().sweep()
                    next_sweep = time.monotonic() + SWEEP_SECONDS
            except DirectoryUnavailable as error:
                self._directory.note_outage()
                if time.monotonic() - began >= HANG_SECONDS:
                    self._directory.hangs(error)
                else:
                    self._directory.responds()
                if reachable:
                    _log.warning("the cluster's directory is away; this host's own objects are not affected: %s", error)
                reachable = False
                wait = RETRY_SECONDS
            except FINAL as error:
                self._give_up(error)
                return
            except Exception:
                self._directory.responds()
                _log.exception("the registration in the cluster's directory could not be renewed, and is tried again")
                wait = RETRY_SECONDS
            if self._publication.wait_until_forgotten(wait) and not self._stopping.is_set():
                self._directory.note_outage()
                self._registration = None

    def _renew(self) -> None:
        if self._store.instance_id != self._instance:
            raise InstanceLost(f"another store has taken the place of instance {self._instance}")
        if self._registration is not None:
            try:
                self._registration.renew()
                return
            except InstanceForgotten as error:
                self._directory.note_outage()
                _log.warning("%s", error)
                self._registration = None
        directory = self._directory.open()
        self._registration = directory.register(
            self._instance,
            self._host,
            self._addresses,
            protocol=PROTOCOL,
            started_at=self._started_at,
            lease_seconds=self._lease_seconds,
            highest_sequence=self._publication.highest_sequence,
        )
        self._publication.registered(self._registration)
        _log.info("instance %s is registered in cluster %s", self._instance, directory.name)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._directory.get().watch() as watch:
                    while not self._stopping.is_set():
                        for change in watch.wait(RETRY_SECONDS):
                            self._report(change.kind, change.instance)
                        live = [each.id for each in self._directory.instances() if each.live]
                        self._peers.keep(live)
            except EntrepotError:
                self._stopping.wait(RETRY_SECONDS)  # membership reports it
            except Exception:
                _log.exception("the instances of the cluster could not be followed, which is tried again")
                self._stopping.wait(RETRY_SECONDS)

    def _report(self, kind: str, instance: Instance) -> None:
        if instance.id == self._instance:
            if kind in ("departed", "lost"):  # the directory was emptied, or the lease has ended
                self._publication.suspect()
            return
        if kind == "lost":
            _log.warning("lost: %s", describe_lost(instance))
        else:
            _log.info("instance %s of host %s: %s", instance.id, instance.host, kind)
