"""How the webhook is set up. The defaults are what the shipped manifests say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_operator.installing import installation

PORT = 9443
PATH = "/mutate-pods"
PATH_WITHOUT_MOUNTS = "/mutate-pods-without-mounts"
# The API server waits for two (timeoutSeconds): what is answered later is not heard.
DEADLINE_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """Where the webhook listens, and whose its certificates are.

    Attributes:
        namespace: that it runs in, with its Secret and Service.
        host: address to listen on; empty: all of this machine.
        port: 0: any that is free.
        service: name of the Service by which the API server finds it.
        configuration: name of the MutatingWebhookConfiguration, whose ``caBundle`` is kept; default: the one that is
            installed with this namespace.
        secret: name of the Secret with the certificates that all replicas share. It must be there, empty at first.
        names: more DNS names and IP addresses of the server, where it is not reached by its Service.
        certificates: folder with ``tls.crt`` and ``tls.key`` that somebody else renews (cert-manager, say); None: they
            are made and renewed here.
        deadline: seconds in which each pod is answered.
        mounts: whether pods get the store's socket mounted.
        events: whether problems become Events.
        refresh_seconds: between two looks at the certificates.

    Raises:
        InvalidArgument: a value is out of its range.
    """

    namespace: str
    host: str = ""
    port: int = PORT
    service: str = "entrepot-webhook"
    configuration: str = ""
    secret: str = "entrepot-webhook-tls"  # noqa: S105 (its name)
    names: tuple[str, ...] = ()
    certificates: Path | None = None
    deadline: float = DEADLINE_SECONDS
    mounts: bool = True
    events: bool = True
    refresh_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.configuration:
            object.__setattr__(self, "configuration", f"{installation(self.namespace)}-webhook")
        if not 0 <= self.port <= 65535:
            raise InvalidArgument(f"a port is a number from 0 to 65535, not {self.port}")
        if not 0 < self.deadline <= 10:
            raise InvalidArgument(f"the deadline is more than 0 and at most 10 seconds, not {self.deadline}")

    @property
    def server_names(self) -> tuple[str, ...]:
        """All names by which the server may be called."""
        inside = f"{self.service}.{self.namespace}"
        return (f"{inside}.svc", f"{inside}.svc.cluster.local", inside, *self.names)
