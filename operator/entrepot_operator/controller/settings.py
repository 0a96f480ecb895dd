"""Configuration of the operator."""

from __future__ import annotations

from dataclasses import dataclass, field

from entrepot.errors import InvalidArgument

from entrepot_operator.controller.garbage_collection import GRACE_SECONDS
from entrepot_operator.controller.state.owned_resources import MANAGER
from entrepot_operator.placement.names import ClusterConfig


@dataclass(frozen=True)
class Settings:
    """Configuration of the operator.

    Attributes:
        namespace: of the Stores, and of everything created for them.
        identity: unique to this replica.
        host, port: where health and metrics are served; port 0: any free one.
        lease_seconds: after which a silent leader is replaced.
        resync_seconds: interval at which everything is applied again.
        hold_seconds: after an outage of the API, no node loses its label because of a lease for this long: publishers
            must renew theirs first.
        sweep_seconds: interval of searches for leftovers of lost nodes.
        grace_seconds: between the end of a lease and the removal of its objects.
        cluster_config: configuration of the stores, for pods scheduled near them.
        gates: namespaces whose pods may wait for their objects; empty: all; None: none, which needs no permissions on
            pods.
        installation: whose replicas these are; distinguishes them from another installation in the same namespace.

    Raises:
        InvalidArgument: a value is out of range.
    """

    namespace: str
    identity: str
    host: str = "127.0.0.1"
    port: int = 8080
    lease_seconds: float = 15.0
    resync_seconds: float = 600.0
    hold_seconds: float = 20.0
    sweep_seconds: float = 30.0
    grace_seconds: float = GRACE_SECONDS
    cluster_config: ClusterConfig = field(default_factory=ClusterConfig)
    gates: tuple[str, ...] | None = ()
    installation: str = "entrepot"

    def __post_init__(self) -> None:
        if not self.namespace or not self.identity or not self.installation:
            raise InvalidArgument("the operator's namespace, identity and installation must not be empty")
        if not 0 <= self.port <= 65535:
            raise InvalidArgument(f"the port must be between 0 and 65535, not {self.port}")
        for name in ("resync_seconds", "sweep_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{name} must be more than 0, not {getattr(self, name):g}")
        for name in ("hold_seconds", "grace_seconds"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} must be 0 or more, not {getattr(self, name):g}")

    @property
    def label_manager(self) -> str:
        """The field manager of the nodes' labels: operators of several namespaces share nodes, and each removes only
        what it wrote itself.
        """
        return f"{MANAGER}.{self.namespace}"
