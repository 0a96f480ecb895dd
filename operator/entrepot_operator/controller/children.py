"""The resources that a Store owns: its DaemonSet, and its publishers' service account. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot_io.cluster.objects import API_VERSION, MANAGED_BY
from entrepot_io.placement.names import ADDRESS_VARIABLE, NODE_VARIABLE, Site

from entrepot_operator.controller import quantities
from entrepot_operator.stores import SpillKey, StoreSpec

Manifest = dict[str, Any]

MANAGER = "entrepot-operator"
ACCOUNT = "entrepot-publisher"  # a ValidatingAdmissionPolicy identifies publishers by this name
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
STORE_APP = "entrepot-store"
DAEMON = "daemon"
PUBLISHER = "publisher"
PREPARE = "prepare"

_MEBIBYTE = 1 << 20
# Memory that entrepotd keeps free below its limit; see docs/daemon.md, "Memory".
_RESERVE_LEAST = 128 * _MEBIBYTE
_RESERVE_SHARE = 32
_TEMPORARY = "/tmp"  # noqa: S108
_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_KEY_FOLDER = "/run/entrepot-spill-key"
_LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True)
class Child:
    """A resource that the operator owns.

    Attributes:
        path: in the API.
        manifest: what is applied.
    """

    path: str
    manifest: Manifest


@dataclass(frozen=True)
class Memory:
    """How the memory of a node's store is divided, in bytes.

    Attributes:
        capacity: of the store.
        daemon: limit of the daemon's container: what it needs plus the reserve that it keeps free below its limit.
        publisher: limit of the publisher's container.
    """

    capacity: int
    daemon: int
    publisher: int


def memory(spec: StoreSpec) -> Memory:
    """Divide the memory of a node's store.

    Raises:
        InvalidArgument: a size is invalid.
    """
    capacity = quantities.parse(spec.capacity, "capacity")
    overhead = quantities.parse(spec.overhead, "overhead")
    publisher = overhead // 2 if spec.publish.enabled else 0
    needed = capacity + overhead - publisher
    # The reserve is a share of the limit itself.
    limit = max(needed + _RESERVE_LEAST, -(-needed * _RESERVE_SHARE // (_RESERVE_SHARE - 1)))
    return Memory(capacity, _whole_mebibytes(limit), _whole_mebibytes(publisher))


def labels_of(store: str) -> dict[str, str]:
    """The labels of everything that belongs to a Store."""
    return {NAME: STORE_APP, INSTANCE: store, COMPONENT: "store", MANAGED_BY: MANAGER}


def daemonset_path(namespace: str, name: str = "") -> str:
    """The API path of DaemonSets."""
    return f"/apis/apps/v1/namespaces/{namespace}/daemonsets" + (f"/{name}" if name else "")


def daemonset_name(store: str) -> str:
    """The name of a Store's DaemonSet."""
    return f"entrepot-{store}"


def daemonset(resource: Mapping[str, Any], spec: StoreSpec) -> Child:
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
            "labels": labels_of(store),
            "ownerReferences": [_owner(resource, controls=True)],
        },
        "spec": {
            "selector": {"matchLabels": {NAME: STORE_APP, INSTANCE: store}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": spec.max_unavailable}},
            "template": {"metadata": {"labels": labels_of(store)}, "spec": _pod(store, spec)},
        },
    }
    return Child(daemonset_path(namespace, name), manifest)


def account(namespace: str, stores: Iterable[Mapping[str, Any]]) -> list[Child]:
    """The service account of a namespace's publishers, owned by all of its Stores together, and its permissions.

    Args:
        namespace: of the Stores.
        stores: the Stores with publishers, as returned by the API; none: there is nothing to own.
    """
    owners = [
        _owner(one, controls=False) for one in sorted(stores, key=lambda one: str(one["metadata"].get("uid") or ""))
    ]
    if not owners:
        return []
    metadata = {
        "name": ACCOUNT,
        "namespace": namespace,
        "labels": {NAME: STORE_APP, COMPONENT: PUBLISHER},  # as installed by the manifests; Helm sets managed-by itself
        "ownerReferences": owners,
    }
    rbac = "rbac.authorization.k8s.io"
    kinds: list[tuple[str, str, Manifest]] = [
        (
            f"/api/v1/namespaces/{namespace}/serviceaccounts",
            "ServiceAccount",
            {"apiVersion": "v1", "automountServiceAccountToken": False},
        ),
        (
            f"/apis/{rbac}/v1/namespaces/{namespace}/roles",
            "Role",
            {"apiVersion": f"{rbac}/v1", "rules": publisher_rules()},
        ),
        (
            f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings",
            "RoleBinding",
            {
                "apiVersion": f"{rbac}/v1",
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
            },
        ),
    ]
    return [Child(f"{path}/{ACCOUNT}", {**rest, "kind": kind, "metadata": metadata}) for path, kind, rest in kinds]


def publisher_rules() -> list[Manifest]:
    """A publisher's permissions in its namespace; the same as in ``manifests/publisher/rbac.yaml``."""
    return [
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["localobjects"],
            "verbs": ["list", "create", "patch", "delete"],
        },
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["globalobjects"],
            "verbs": ["get", "list", "create", "patch", "delete"],
        },
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["localobjects/status", "globalobjects/status"],
            "verbs": ["patch"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]},
    ]


def _owner(resource: Mapping[str, Any], *, controls: bool) -> Manifest:
    metadata = resource["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": "Store", "name": metadata["name"], "uid": metadata["uid"]}
    return {**owner, "controller": True} if controls else owner


def _pod(store: str, spec: StoreSpec) -> Manifest:
    site = Site(spec.socket_folder)
    if len(f"{spec.socket_folder}/{site.socket}") > 107:
        raise InvalidArgument(f"socketFolder {spec.socket_folder!r} is too long for the name of a socket")
    dealt = memory(spec)
    socket = {"name": "socket", "mountPath": spec.socket_folder}
    temporary = {"name": "temporary", "mountPath": _TEMPORARY}
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
        volumes.append(_spill_key(spec.spill.key_secret))
    variables: list[Manifest] = [
        {"name": ADDRESS_VARIABLE, "value": site.address},
        {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    ]
    image: Manifest = {"image": spec.image}
    if spec.image_pull_policy is not None:
        image["imagePullPolicy"] = spec.image_pull_policy
    answers = {"exec": {"command": ["entrepot", "status", "--address", site.address]}, "timeoutSeconds": 10}
    daemon: Manifest = {
        **image,
        "name": DAEMON,
        "command": ["entrepotd"],
        "args": _arguments(spec, site, dealt),
        "env": variables,
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": str(dealt.daemon)},
            "limits": {"memory": str(dealt.daemon)},
        },
        "volumeMounts": [socket, temporary, *spill, *key],
        # The keeper restarts a dead daemon by itself, whereas ending the container loses every object: restart it only
        # if the store has not responded for three minutes.
        "startupProbe": {**answers, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**answers, "periodSeconds": 10, "failureThreshold": 2},
        "livenessProbe": {**answers, "periodSeconds": 30, "failureThreshold": 6},
        # On a signal, the objects of durable sessions would not be written to their target.
        "lifecycle": {"preStop": {"exec": {"command": ["entrepot", "stop", "--address", site.address]}}},
        "securityContext": _LOCKED,
    }
    containers = [daemon]
    if spec.publish.enabled:
        containers.append(
            {
                **image,
                "name": PUBLISHER,
                "command": ["entrepot", "publish"],
                "args": _publish_arguments(store, spec),
                "env": variables,
                "resources": {
                    "requests": {"cpu": "10m", "memory": str(dealt.publisher)},
                    "limits": {"memory": str(dealt.publisher)},
                },
                "volumeMounts": [
                    {**socket, "readOnly": True},
                    temporary,
                    {"name": "account", "mountPath": _ACCOUNT_FOLDER, "readOnly": True},
                ],
                "securityContext": _LOCKED,
            }
        )
        volumes.append(_token())
    made: Manifest = {
        "automountServiceAccountToken": False,  # the daemon does not use the API
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 120,
        "nodeSelector": {"kubernetes.io/os": "linux", **spec.node_selector},
        "tolerations": [dict(one) for one in spec.tolerations],
        "securityContext": {
            "runAsUser": spec.run_as_user,
            "runAsGroup": spec.run_as_user,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_prepare(spec, image, [socket, *spill])],
        "containers": containers,
        "volumes": volumes,
    }
    if key:
        made["securityContext"]["fsGroup"] = spec.run_as_user  # else a Secret's files are private to root
    if spec.publish.enabled:
        made["serviceAccountName"] = ACCOUNT
    if spec.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    if spec.priority_class_name is not None:
        made["priorityClassName"] = spec.priority_class_name
    return made


def _prepare(spec: StoreSpec, image: Manifest, mounts: list[Manifest]) -> Manifest:
    """Init container: directories created by the kubelet belong to root, and the store accepts only its own user's."""
    return {
        **image,
        "name": PREPARE,
        "command": ["chown", "--no-dereference", f"{spec.run_as_user}:{spec.run_as_user}"],
        "args": [str(mount["mountPath"]) for mount in mounts],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "16Mi"}},
        "volumeMounts": mounts,
        "securityContext": {
            **_LOCKED,
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
    }


def _spill_key(secret: SpillKey) -> Manifest:
    """Mounted only in the daemon's container."""
    items = [{"key": secret.key, "path": "key"}]
    return {"name": "spill-key", "secret": {"secretName": secret.name, "defaultMode": 0o440, "items": items}}


def _token() -> Manifest:
    """The publisher's token, mounted only in its container; it identifies the pod's node."""
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


def _arguments(spec: StoreSpec, site: Site, dealt: Memory) -> list[str]:
    said = [f"--address={site.address}", f"--size={dealt.capacity}"]
    if spec.default_ttl is not None:
        said.append(f"--default-ttl={spec.default_ttl}")
    if spec.spill is None:
        return [*said, "--spill-path=none"]
    said.append(f"--spill-path={spec.spill.folder}")
    if spec.spill.quota is not None:
        said.append(f"--spill-quota={quantities.parse(spec.spill.quota, 'spill.quota')}")
    if spec.spill.compression is not None:
        said.append(f"--spill-compression={spec.spill.compression}")
    if spec.spill.key_secret is not None:
        # Not --spill-key-file, which accepts only a file owned by, and private to, its user.
        said.append(f"--spill-key-command=cat {_KEY_FOLDER}/key")
    return said


def _publish_arguments(store: str, spec: StoreSpec) -> list[str]:
    return [
        f"--store={store}",
        f"--max-objects={spec.publish.max_objects}",
        f"--min-bytes={spec.publish.min_bytes}",
        f"--writes-per-second={spec.publish.writes_per_second}",
        f"--lease-seconds={spec.publish.lease_seconds}",
    ]


def _whole_mebibytes(count: int) -> int:
    return -(-count // _MEBIBYTE) * _MEBIBYTE
