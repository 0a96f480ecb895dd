"""Labels, annotations and names on pods and nodes. They are a public interface: users' manifests contain them."""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.errors import InvalidArgument

GROUP = "entrepot.dev"

# Written on a pod by its user.
REQUIRES = f"{GROUP}/requires"
PARTITIONED = f"{GROUP}/partitioned"
PARTITIONS = f"{GROUP}/partitions"
FIRST_ORDINAL = f"{GROUP}/first-ordinal"
LOCALITY = f"{GROUP}/locality"
STORE = f"{GROUP}/store"
MOUNTS = f"{GROUP}/mounts"
CONTAINERS = f"{GROUP}/containers"
# Resolved to IDs by an orchestrator's plugin when it creates the pod: its tasks, and keys of a session.
READS = f"{GROUP}/reads"
KEYS = f"{GROUP}/keys"
SCOPE = f"{GROUP}/scope"
SESSION = f"{GROUP}/session"
USER_ANNOTATIONS = (
    *(REQUIRES, PARTITIONED, PARTITIONS, FIRST_ORDINAL, LOCALITY, STORE, MOUNTS, CONTAINERS),
    *(READS, KEYS, SCOPE, SESSION),
)

# Written by an injection.
INJECTED = f"{GROUP}/injected"

# Scheduling gate: holds the pod until the objects that it requires are available, at most until a timeout.
GATE = f"{GROUP}/objects"
GATE_TIMEOUT = f"{GROUP}/objects-timeout"

# Label of a node that has a store, maintained by whoever runs the stores.
STORE_LABEL = f"{GROUP}/store"
STORE_READY = "ready"

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

# Kubernetes' labels with the ordinal of a pod in a set.
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
STATEFUL_POD = "statefulset.kubernetes.io/pod-name"

SOCKET_VOLUME = "entrepot-socket"
SHARED_MEMORY_VOLUME = "entrepot-shared-memory"
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108
ADDRESS_VARIABLE = "ENTREPOT_ADDRESS"
NODE_VARIABLE = "ENTREPOT_NODE"

ANNOTATIONS_MAX_BYTES = 256 * 1024  # limit on all annotations of one object together, enforced by the API server


@dataclass(frozen=True)
class ClusterConfig:
    """Configuration shared by a cluster's stores.

    Attributes:
        socket_folder: directory of the store's socket, the same on every node and in the pods.
        socket: name of the socket in it.
        shared_memory: size limit of the memory mounted at ``/dev/shm``, as a Kubernetes quantity (``"1Gi"``); ``""``:
            only the pod's own memory limit applies; None: nothing is mounted there.
        store_label, store_value: the label of a node that has a store.
        hostname_label: the label used to select a single node.
        zone_label: the label with a node's zone.

    Raises:
        InvalidArgument: the directory is not absolute, or the socket is not a plain file name.
    """

    socket_folder: str = "/run/entrepot"
    socket: str = "store.sock"
    shared_memory: str | None = ""
    store_label: str = STORE_LABEL
    store_value: str = STORE_READY
    hostname_label: str = HOSTNAME
    zone_label: str = ZONE

    def __post_init__(self) -> None:
        folder = self.socket_folder
        if not folder.startswith("/") or folder.endswith("/") or ":" in folder or ".." in folder.split("/"):
            raise InvalidArgument(
                f"the socket's folder must be an absolute path without colon, '..' or trailing slash, not {folder!r}"
            )
        if not self.socket or "/" in self.socket:
            raise InvalidArgument(f"the socket must be a file name within its folder, not {self.socket!r}")

    @property
    def address(self) -> str:
        """The address that a client connects to."""
        return f"unix://{self.socket_folder}/{self.socket}"
