"""The gateway's container in a store's pod: its command line, and the Secrets that it needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from entrepot_operator.controller.state import quantities
from entrepot_operator.kubernetes.store_spec import ClusterSpec

Manifest = dict[str, Any]
NAME = "gateway"
ROLE = "entrepot-gateway"
PORT_NAME = "gateway"
_SCHEME = "kubernetes"
_FOLDER = "/run/entrepot-cluster"
_NODE = "$(ENTREPOT_NODE)"
_POD_IP = "POD_IP"


def uses_api(cluster: ClusterSpec | None) -> bool:
    """Whether a gateway needs a token, because the directory is in Kubernetes."""
    return cluster is not None and urlsplit(cluster.directory).scheme == _SCHEME


def uses_directory_in(cluster: ClusterSpec | None, namespace: str) -> bool:
    """Whether the directory is in this namespace, which the operator gives its pods access to."""
    return cluster is not None and uses_api(cluster) and urlsplit(cluster.directory).netloc in ("", namespace)


def directory_rules() -> list[Manifest]:
    """A gateway's permissions in the namespace of its directory; the same as in ``manifests/gateway/rbac.yaml``."""
    return [
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["directoryshards"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "update", "delete"],
        },
    ]


@dataclass(frozen=True)
class GatewayContainer:
    """The gateway beside a node's store.

    Attributes:
        cluster: its settings.
        capacity: of the store, in bytes.
    """

    cluster: ClusterSpec
    capacity: int

    @property
    def uses_api(self) -> bool:
        """Whether it needs a token."""
        return uses_api(self.cluster)

    def container(
        self, image: Manifest, variables: list[Manifest], mounts: list[Manifest], security: Mapping[str, Any]
    ) -> Manifest:
        """The container.

        On SIGTERM a gateway leaves the cluster, so its instance does not count as lost; a command that first moves its
        objects elsewhere belongs into ``lifecycle.preStop`` here.

        Args:
            image: image and pull policy.
            variables: environment of all containers.
            mounts: of the socket, of a temporary folder, and of the token if it needs one.
            security: its security context.

        Raises:
            InvalidArgument: a size is invalid.
        """
        memory = quantities.parse(self.cluster.memory, "cluster.memory")
        address = {"name": _POD_IP, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
        return {
            **image,
            "name": NAME,
            "command": ["entrepot", "gateway"],
            "args": self._arguments(),
            "env": [*variables, address],
            "ports": [{"name": PORT_NAME, "containerPort": self.cluster.port, "protocol": "TCP"}],
            "resources": {
                "requests": {"cpu": "50m", "memory": str(memory)},
                # Pages of the store count where they were written first: what is fetched from other stores counts here.
                "limits": {"memory": str(memory + self.capacity)},
            },
            "volumeMounts": [*mounts, *self._secret_mounts()],
            "securityContext": dict(security),
        }

    def volumes(self) -> list[Manifest]:
        """The volumes that only this container mounts."""
        cluster = self.cluster
        volumes = []
        if cluster.directory_secret is not None:
            volumes.append(_secret("cluster-directory", cluster.directory_secret.name))
        if cluster.token_secret is not None:
            token = _secret("cluster-token", cluster.token_secret.name)
            token["secret"]["items"] = [{"key": cluster.token_secret.key, "path": "token"}]
            volumes.append(token)
        if cluster.tls_secret is not None:
            volumes.append(_secret("cluster-tls", cluster.tls_secret.name))
        return volumes

    def _secret_mounts(self) -> list[Manifest]:
        return [
            {"name": volume["name"], "mountPath": _folder(volume["name"]), "readOnly": True}
            for volume in self.volumes()
        ]

    def _arguments(self) -> list[str]:
        cluster = self.cluster
        arguments = [
            "--keep-running",  # it starts at the same time as the store
            f"--cluster={cluster.directory}",
            f"--listen=$({_POD_IP}):{cluster.port}",
            f"--host={_NODE}",
        ]
        if cluster.token_secret is not None:
            arguments.append(f"--token-file={_folder('cluster-token')}/token")
        if cluster.tls_secret is not None:
            folder = _folder("cluster-tls")
            arguments += [f"--tls-cert={folder}/tls.crt", f"--tls-key={folder}/tls.key", f"--tls-ca={folder}/ca.crt"]
        return [*arguments, *cluster.options]


def _folder(volume: str) -> str:
    return f"{_FOLDER}/{volume.removeprefix('cluster-')}"


def _secret(volume: str, name: str) -> Manifest:
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}
