"""Configuration of the webhook. The defaults match the shipped manifests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_operator.install_manifests import installation_prefix

PORT = 9443
PATH = "/mutate-pods"
PATH_WITHOUT_MOUNTS = "/mutate-pods-without-mounts"
# The API server waits for two seconds (timeoutSeconds) and ignores later responses.
DEADLINE_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """Settings of the webhook's server and its certificates.

    Attributes:
        namespace: of the webhook, its Secret and its Service.
        host: address to listen on; empty: all of this machine's.
        port: 0: any free one.
        service: name of the Service through which the API server reaches it.
        configuration: name of the MutatingWebhookConfiguration whose ``caBundle`` is maintained; default: the one
            installed with this namespace.
        secret: name of the Secret with the certificates shared by all replicas. It must exist, initially empty.
        names: further DNS names and IP addresses of the server, if it is not reached through its Service.
        certificates: directory with ``tls.crt`` and ``tls.key`` renewed by others (such as cert-manager); None: they
            are created and renewed here.
        deadline: seconds within which each pod is answered.
        mounts: whether pods get the store's socket mounted.
        events: whether problems become Events.
        refresh_seconds: interval of checks of the certificates.

    Raises:
        InvalidArgument: a value is out of range.
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
            object.__setattr__(self, "configuration", f"{installation_prefix(self.namespace)}-webhook")
        if not 0 <= self.port <= 65535:
            raise InvalidArgument(f"the port must be between 0 and 65535, not {self.port}")
        if not 0 < self.deadline <= 10:
            raise InvalidArgument(f"the deadline must be more than 0 and at most 10 seconds, not {self.deadline}")

    @property
    def server_names(self) -> tuple[str, ...]:
        """All names of the server."""
        inside = f"{self.service}.{self.namespace}"
        return (f"{inside}.svc", f"{inside}.svc.cluster.local", inside, *self.names)
