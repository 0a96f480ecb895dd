"""Connections to the gateways of other instances, one pool for each."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from entrepot.errors import EntrepotError, StoreUnavailable

from entrepot_cluster.directory.model import Instance
from entrepot_cluster.transport.handshake import Identity
from entrepot_cluster.transport.peer import PeerConnections
from entrepot_cluster.transport.security import TransportSecurity

MAX_CONNECTIONS = 128  # to one peer: as many as calls are answered at once


class Peers:
    """Pools of connections by instance and address. Thread-safe.

    Args:
        identity: this gateway.
        security: TLS and token.
        transport: ``"tcp"`` or ``"ucx"``.
    """

    def __init__(self, identity: Identity, security: TransportSecurity, transport: str) -> None:
        self._identity = identity
        self._security = security
        self._transport = transport
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, str], PeerConnections] = {}  # guarded by _lock
        self._closed = False  # guarded by _lock

    def get(self, instance: Instance) -> PeerConnections:
        """Return connections to an instance: at the first of its addresses that answers, or else the first.

        Raises:
            StoreUnavailable: it has no address, or this gateway is being closed.
        """
        if not instance.addresses:
            raise StoreUnavailable(f"the gateway of host {instance.host} has published no address")
        pools = [self._pool(instance.id, address) for address in instance.addresses]
        if len(pools) == 1:
            return pools[0]
        for pool in pools:
            try:
                pool.ping()
            except EntrepotError:
                continue
            return pool
        return pools[0]

    def at(self, address: str, instance: str) -> PeerConnections:
        """Return connections to an instance at an address."""
        return self._pool(instance, address)

    def _pool(self, instance: str, address: str) -> PeerConnections:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("this gateway is being stopped")
            pool = self._pools.get((instance, address))
            if pool is None:
                pool = PeerConnections(
                    address,
                    self._identity,
                    instance=instance,
                    security=self._security,
                    transport=self._transport,
                    max_connections=MAX_CONNECTIONS,
                )
                self._pools[instance, address] = pool
            return pool

    def keep(self, live: Iterable[str]) -> None:
        """Close idle connections, and all to instances that are not live."""
        ids = set(live)
        with self._lock:
            gone = [key for key in self._pools if key[0] not in ids]
            closing = [self._pools.pop(key) for key in gone]
            others = list(self._pools.values())
        for pool in closing:
            pool.close()
        for pool in others:
            pool.close_idle()

    def close(self) -> None:
        """Close all connections; further ones are refused."""
        with self._lock:
            self._closed = True
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()
