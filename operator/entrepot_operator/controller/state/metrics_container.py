"""The container in a store's pod that serves the store's metrics to Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot_operator.controller.state import quantities
from entrepot_operator.kubernetes.store_spec import MetricsSpec

Manifest = dict[str, Any]
NAME = "metrics"
PORT_NAME = "metrics"
_POD_IP = "POD_IP"


def container(
    spec: MetricsSpec, image: Manifest, variables: list[Manifest], mounts: list[Manifest], security: Mapping[str, Any]
) -> Manifest:
    """The container: ``entrepot metrics``, which waits for a store that is not there yet.

    Args:
        spec: its settings.
        image: image and pull policy.
        variables: environment of all containers.
        mounts: of the socket and of a temporary folder.
        security: its security context.

    Raises:
        InvalidArgument: its memory is no quantity.
    """
    memory = str(quantities.parse(spec.memory, "metrics.memory"))
    address = {"name": _POD_IP, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    return {
        **image,
        "name": NAME,
        "command": ["entrepot", "metrics"],
        "args": [f"--listen=$({_POD_IP}):{spec.port}"],
        "env": [*variables, address],
        "ports": [{"name": PORT_NAME, "containerPort": spec.port, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "10m", "memory": memory}, "limits": {"memory": memory}},
        "volumeMounts": mounts,
        "securityContext": dict(security),
    }
