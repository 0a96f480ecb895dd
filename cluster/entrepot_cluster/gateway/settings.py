"""What a gateway is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from entrepot_cluster.transport.compression import AUTO
from entrepot_cluster.transport.security import TransportSecurity

DEFAULT_LISTEN = "127.0.0.1:0"
LEASE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        directory: URL of the cluster's directory, ``etcd://HOST:PORT/NAME`` or another kind (docs/cluster.md).
        address: of the store; None: the one that ``entrepot.connect`` finds.
        listen: ``host:port`` to listen on for other gateways; port 0: any free one.
        advertise: ``host:port`` under which they reach it. Default: where it listens.
        host: name of this host in the directory. Default: the store's.
        security: TLS and token. Default: none, and loopback addresses only.
        compression: ``"auto"``: objects are sent compressed where that makes them arrive earlier; ``"off"``: never.
            Default: auto.
        lease_seconds: how long after its last sign of life the instance counts as lost. Default: 10.
    """

    directory: str
    address: str | None = None
    listen: str = DEFAULT_LISTEN
    advertise: tuple[str, ...] = ()
    host: str | None = None
    security: TransportSecurity = field(default_factory=TransportSecurity)
    compression: str = AUTO
    lease_seconds: float = LEASE_SECONDS
