"""How the operator is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from entrepot.errors import InvalidArgument
from entrepot_io.placement.names import Site

from entrepot_operator.controller.children import MANAGER
from entrepot_operator.publishing.expiry import GRACE_SECONDS


@dataclass(frozen=True)
class Settings:
    """How the operator is set up.

    Attributes:
        namespace: of the Stores, and of all that is made for them.
        identity: of this replica; no other has it.
        host, port: where health and metrics are served; port 0: any that is free.
        lease_seconds: after which a leader that is not heard of is replaced.
        resync_seconds: between two times that everything is applied again.
        hold_seconds: after the API was away, for so long no node loses its label because of a lease: publishers renew
            theirs first.
        sweep_seconds: between two looks for what lost nodes left.
        grace_seconds: between the end of a lease and the removal of its objects.
        site: how stores are set up, for pods that are drawn to them.
        gates: namespaces whose pods may wait for their objects; empty: all; None: none, which needs no rights on pods.
        installation: whose replicas these are; another installation of the same namespace is not taken for one of them.

    Raises:
        InvalidArgument: a value is out of its range.
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
    site: Site = field(default_factory=Site)
    gates: tuple[str, ...] | None = ()
    installation: str = "entrepot"

    def __post_init__(self) -> None:
        if not self.namespace or not self.identity or not self.installation:
            raise InvalidArgument("an operator has a namespace, an identity and an installation that are not empty")
        if not 0 <= self.port <= 65535:
            raise InvalidArgument(f"a port is a number from 0 to 65535, not {self.port}")
        for name in ("resync_seconds", "sweep_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{name} is more than 0, not {getattr(self, name):g}")
        for name in ("hold_seconds", "grace_seconds"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} is 0 or more, not {getattr(self, name):g}")

    @property
    def manager_of_labels(self) -> str:
        """The field manager of the nodes' labels: operators of several namespaces share nodes, and each takes away only
        what it wrote itself."""
        return f"{MANAGER}.{self.namespace}"
