"""The DaemonSet of a Store. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.controller.state import gateway_container, metrics_container, quantities
from entrepot_operator.kubernetes.objects import API_VERSION, MANAGED_BY
from entrepot_operator.kubernetes.store_spec import SpillKeySecret, StoreSpec
from entrepot_operator.placement.names import ADDRESS_VARIABLE, NODE_VARIABLE, ClusterConfig

Manifest = dict[str, Any]

MANAGER = "entrepot-operator"
PUBLISHER_ACCOUNT = "entrepot-publisher"  # a ValidatingAdmissionPolicy identifies publishers by this name
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
STORE_APP = "entrepot-store"
DAEMON_CONTAINER = "daemon"
PUBLISHER_CONTAINER = "publisher"
INIT_CONTAINER = "prepare"

_MEBIBYTE = 1 << 20
# Memory that entrepotd keeps free below its limit; see docs/daemon.md, "Memory".
_MIN_RESERVE = 128 * _MEBIBYTE
_RESERVE_DIVISOR = 32
_TEMPORARY_FOLDER = "/tmp"  # noqa: S108
_ACCOUNT_MOUNT = {"name": "account", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
_KEY_FOLDER = "/run/entrepot-spill-key"
_RESTRICTED_SECURITY_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True)
class OwnedResource:
    """A resource that the operator owns.

    Attributes:
        path: in the API.
        manifest: what is applied.
    """

    path: str
    manifest: Manifest


@dataclass(frozen=True)
class MemoryBudget:
    """Division of the memory of a node's store, in bytes.

    Attributes:
        capacity: of the store.
        daemon: limit of the daemon's container: what it needs plus the reserve that it keeps free below its limit.
        publisher: limit of the publisher's container.
    """

    capacity: int
    daemon: int
    publisher: int


def divide_memory(spec: StoreSpec) -> MemoryBudget:
    """Divide the memory of a node's store.

    Raises:
        InvalidArgument: a size is invalid.
    """
    capacity = quantities.parse(spec.capacity, "capacity")
    overhead = quantities.parse(spec.overhead, "overhead")
    publisher = overhead // 2 if spec.publish.enabled else 0
    needed = capacity + overhead - publisher
    # The reserve is a share of the limit itself.
    limit = max(needed + _MIN_RESERVE, -(-needed * _RESERVE_DIVISOR // (_RESERVE_DIVISOR - 1)))
    return MemoryBudget(capacity, _round_up_to_mebibytes(limit), _round_up_to_mebibytes(publisher))


def store_labels(store: str) -> dict[str, str]:
    """The labels of everything that belongs to a Store."""
    return {NAME_LABEL: STORE_APP, INSTANCE_LABEL: store, COMPONENT_LABEL: "store", MANAGED_BY: MANAGER}


def daemonset_path(namespace: str, name: str = "") -> str:
    """The API path of DaemonSets."""
    return f"/apis/apps/v1/namespaces/{namespace}/daemonsets" + (f"/{name}" if name else "")


def daemonset_name(store: str) -> str:
    """The name of a Store's DaemonSet."""
    return f"entrepot-{store}"


def daemonset(resource: Mapping[str, Any], spec: StoreSpec) -> OwnedResource:
    """The DaemonSet of a Store.

    Args:
        resource: the Store, as returned by the API.
        spec: its parsed spec.

    Raises:
        InvalidArgument: a size is invalid, or the socket's path is too long.
    """
    store, namespace = str(resource["metadata"]["name"]), str(resource["metadata"]["namespace"])
    name = daemonset_name(store)
    manifest: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": store_labels(store),
            "ownerReferences": [owner_reference(resource, controls=True)],
        },
        "spec": {
            "selector": {"matchLabels": {NAME_LABEL: STORE_APP, INSTANCE_LABEL: store}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": spec.max_unavailable}},
            "template": {"metadata": {"labels": store_labels(store)}, "spec": _pod_spec(store, spec)},
        },
    }
    return OwnedResource(daemonset_path(namespace, name), manifest)


def owner_reference(resource: Mapping[str, Any], *, controls: bool) -> Manifest:
    """The reference of what a Store owns to it; ``controls``: alone."""
    metadata = resource["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": "Store", "name": metadata["name"], "uid": metadata["uid"]}
    return {**owner, "controller": True} if controls else owner


def _pod_spec(store: str, spec: StoreSpec) -> Manifest:
    cluster_config = ClusterConfig(spec.socket_folder)
    if len(f"{spec.socket_folder}/{cluster_config.socket}") > 107:
        raise InvalidArgument(f"socketFolder {spec.socket_folder!r} is too long for the path of a socket")
    budget = divide_memory(spec)
    socket = {"name": "socket", "mountPath": spec.socket_folder}
    temporary = {"name": "temporary", "mountPath": _TEMPORARY_FOLDER}
    spill = [] if spec.spill is None else [{"name": "spill", "mountPath": spec.spill.folder}]
    volumes: list[Manifest] = [
        {"name": "socket", "hostPath": {"path": spec.socket_folder, "type": "DirectoryOrCreate"}},
        {"name": "temporary", "emptyDir": {"sizeLimit": "16Mi"}},
    ]
    if spec.spill is not None:
        volumes.append({"name": "spill", "hostPath": {"path": spec.spill.folder, "type": "DirectoryOrCreate"}})
    key: list[Manifest] = []
    if spec.spill is not None and spec.spill.key_secret is not None:
        key = [{"name": "spill-key", "mountPath": _KEY_FOLDER, "readOnly": True}]
        volumes.append(_spill_key_volume(spec.spill.key_secret))
    variables: list[Manifest] = [
        {"name": ADDRESS_VARIABLE, "value": cluster_config.address},
        {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    ]
    image: Manifest = {"image": spec.image}
    if spec.image_pull_policy is not None:
        image["imagePullPolicy"] = spec.image_pull_policy
    probe = {"exec": {"command": ["entrepot", "status", "--address", cluster_config.address]}, "timeoutSeconds": 10}
    daemon: Manifest = {
        **image,
        "name": DAEMON_CONTAINER,
        "command": ["entrepotd"],
        "args": _daemon_arguments(spec, cluster_config, budget),
        "env": variables,
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": str(budget.daemon)},
            "limits": {"memory": str(budget.daemon)},
        },
        "volumeMounts": [socket, temporary, *spill, *key],
        # The keeper restarts a dead daemon by itself, whereas ending the container loses every object: restart it only
        # if the store has not responded for three minutes.
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 2},
        "livenessProbe": {**probe, "periodSeconds": 30, "failureThreshold": 6},
        # On a signal, the objects of durable sessions would not be written to their target.
        "lifecycle": {"preStop": {"exec": {"command": ["entrepot", "stop", "--address", cluster_config.address]}}},
        "securityContext": _RESTRICTED_SECURITY_CONTEXT,
    }
    containers = [daemon]
    if spec.publish.enabled:
        containers.append(
            {
                **image,
                "name": PUBLISHER_CONTAINER,
                "command": ["entrepot", "publish"],
                "args": _publisher_arguments(store, spec),
                "env": variables,
                "resources": {
                    "requests": {"cpu": "10m", "memory": str(budget.publisher)},
                    "limits": {"memory": str(budget.publisher)},
                },
                "volumeMounts": [
                    {**socket, "readOnly": True},
                    temporary,
                    _ACCOUNT_MOUNT,
                ],
                "securityContext": _RESTRICTED_SECURITY_CONTEXT,
            }
        )
    if spec.cluster is not None:
        gateway = gateway_container.GatewayContainer(spec.cluster, budget.capacity)
        account = [_ACCOUNT_MOUNT] if gateway.uses_api else []
        mounts: list[Manifest] = [{**socket, "readOnly": True}, temporary, *account]
        containers.append(gateway.container(image, variables, mounts, _RESTRICTED_SECURITY_CONTEXT))
        volumes += gateway.volumes()
    if spec.metrics is not None:
        mounts = [{**socket, "readOnly": True}, temporary]
        containers.append(
            metrics_container.container(spec.metrics, image, variables, mounts, _RESTRICTED_SECURITY_CONTEXT)
        )
    uses_api = spec.publish.enabled or gateway_container.uses_api(spec.cluster)
    if uses_api:
        volumes.append(_token_volume())
    pod_spec: Manifest = {
        "automountServiceAccountToken": False,  # the daemon does not use the API
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 120,
        "nodeSelector": {"kubernetes.io/os": "linux", **spec.node_selector},
        "tolerations": [dict(toleration) for toleration in spec.tolerations],
        "securityContext": {
            "runAsUser": spec.run_as_user,
            "runAsGroup": spec.run_as_user,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_init_container(spec, image, [socket, *spill])],
        "containers": containers,
        "volumes": volumes,
    }
    if key or spec.cluster is not None:
        pod_spec["securityContext"]["fsGroup"] = spec.run_as_user  # else a Secret's files are private to root
    if uses_api:
        pod_spec["serviceAccountName"] = PUBLISHER_ACCOUNT
    if spec.image_pull_secrets:
        pod_spec["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    if spec.priority_class_name is not None:
        pod_spec["priorityClassName"] = spec.priority_class_name
    return pod_spec


def _init_container(spec: StoreSpec, image: Manifest, mounts: list[Manifest]) -> Manifest:
    """Init container: directories created by the kubelet belong to root, and the store accepts only its own user's."""
    return {
        **image,
        "name": INIT_CONTAINER,
        "command": ["chown", "--no-dereference", f"{spec.run_as_user}:{spec.run_as_user}"],
        "args": [str(mount["mountPath"]) for mount in mounts],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "16Mi"}},
        "volumeMounts": mounts,
        "securityContext": {
            **_RESTRICTED_SECURITY_CONTEXT,
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
    }


def _spill_key_volume(secret: SpillKeySecret) -> Manifest:
    """Mounted only in the daemon's container."""
    items = [{"key": secret.key, "path": "key"}]
    return {"name": "spill-key", "secret": {"secretName": secret.name, "defaultMode": 0o440, "items": items}}


def _token_volume() -> Manifest:
    """The account's token, mounted only in the containers that use the API; it identifies the pod's node."""
    sources: list[Manifest] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    return {"name": "account", "projected": {"defaultMode": 0o444, "sources": sources}}


def _daemon_arguments(spec: StoreSpec, cluster_config: ClusterConfig, budget: MemoryBudget) -> list[str]:
    arguments = [f"--address={cluster_config.address}", f"--size={budget.capacity}"]
    if spec.default_ttl is not None:
        arguments.append(f"--default-ttl={spec.default_ttl}")
    if spec.spill is None:
        return [*arguments, "--spill-path=none"]
    arguments.append(f"--spill-path={spec.spill.folder}")
    if spec.spill.quota is not None:
        arguments.append(f"--spill-quota={quantities.parse(spec.spill.quota, 'spill.quota')}")
    if spec.spill.compression is not None:
        arguments.append(f"--spill-compression={spec.spill.compression}")
    if spec.spill.key_secret is not None:
        # Not --spill-key-file, which accepts only a file owned by, and private to, its user.
        arguments.append(f"--spill-key-command=cat {_KEY_FOLDER}/key")
    return arguments


def _publisher_arguments(store: str, spec: StoreSpec) -> list[str]:
    return [
        f"--store={store}",
        f"--max-objects={spec.publish.max_objects}",
        f"--min-bytes={spec.publish.min_bytes}",
        f"--writes-per-second={spec.publish.writes_per_second}",
        f"--lease-seconds={spec.publish.lease_seconds}",
    ]


def _round_up_to_mebibytes(count: int) -> int:
    return -(-count // _MEBIBYTE) * _MEBIBYTE
