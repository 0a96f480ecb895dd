"""What a gateway is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from entrepot.errors import InvalidArgument

from entrepot_cluster.transport.addresses import split_address
from entrepot_cluster.transport.compression import AUTO
from entrepot_cluster.transport.security import TransportSecurity
from entrepot_cluster.transport.ucx_wire import TCP

DEFAULT_LISTEN = "127.0.0.1:0"
LEASE_SECONDS = 10.0
MAX_LEASE_SECONDS = 86_400.0  # a lost instance is forgotten after a day
MAX_HOST_BYTES = 255


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
        transport: ``"ucx"``: objects travel over UCX between gateways that have this setting. Default: ``"tcp"``.
        lease_seconds: how long after its last sign of life the instance counts as lost, 1 to 86,400. Default: 10.

    Raises:
        InvalidArgument: a setting is wrong.
    """

    directory: str
    address: str | None = None
    listen: str = DEFAULT_LISTEN
    advertise: tuple[str, ...] = ()
    host: str | None = None
    security: TransportSecurity = field(default_factory=TransportSecurity)
    compression: str = AUTO
    transport: str = TCP
    lease_seconds: float = LEASE_SECONDS

    def __post_init__(self) -> None:
        for address in self.advertise:
            _, port = split_address(address)
            if not port:
                raise InvalidArgument(f"other gateways cannot reach this one at port 0, so {address!r} is no address")
        if self.host is not None:
            _check_host(self.host)
        if not 1 <= self.lease_seconds <= MAX_LEASE_SECONDS:  # nan neither
            raise InvalidArgument(
                f"a lease must last 1 to {MAX_LEASE_SECONDS:g} seconds, but got {self.lease_seconds:g}"
            )


def _check_host(host: str) -> None:
    is_text = host.isprintable() and not host[:1].isspace() and not host[-1:].isspace()
    if not host or not is_text or len(host.encode("utf-8", "replace")) > MAX_HOST_BYTES:
        raise InvalidArgument(
            f"the name of a host must be 1 to {MAX_HOST_BYTES} bytes of printable text, not {host[:100]!r}"
        )
