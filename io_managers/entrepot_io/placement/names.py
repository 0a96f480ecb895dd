"""Labels, annotations and names that pods and nodes carry. They are part of the interface: manifests name them."""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.errors import InvalidArgument

GROUP = "entrepot.dev"

# What a user writes on a pod.
REQUIRES = f"{GROUP}/requires"
PARTITIONED = f"{GROUP}/partitioned"
PARTITIONS = f"{GROUP}/partitions"
FIRST_ORDINAL = f"{GROUP}/first-ordinal"
LOCALITY = f"{GROUP}/locality"
STORE = f"{GROUP}/store"
MOUNTS = f"{GROUP}/mounts"
CONTAINERS = f"{GROUP}/containers"
# What a host's plugin makes IDs of when it makes the pod: its tasks, and keys of a session.
READS = f"{GROUP}/reads"
KEYS = f"{GROUP}/keys"
SCOPE = f"{GROUP}/scope"
SESSION = f"{GROUP}/session"
ASKED = (
    *(REQUIRES, PARTITIONED, PARTITIONS, FIRST_ORDINAL, LOCALITY, STORE, MOUNTS, CONTAINERS),
    *(READS, KEYS, SCOPE, SESSION),
)

# What an injection writes.
INJECTED = f"{GROUP}/injected"

# A scheduling gate: the pod is held until the objects that it requires are there, for at most so long.
GATE = f"{GROUP}/objects"
GATE_TIMEOUT = f"{GROUP}/objects-timeout"

# The label of a node that has a store; whoever runs the stores keeps it.
STORE_LABEL = f"{GROUP}/store"
STORE_READY = "ready"

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

# Where Kubernetes says which pod of several this one is.
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
STATEFUL_POD = "statefulset.kubernetes.io/pod-name"

SOCKET_VOLUME = "entrepot-socket"
SHARED_MEMORY_VOLUME = "entrepot-shared-memory"
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108
ADDRESS_VARIABLE = "ENTREPOT_ADDRESS"
NODE_VARIABLE = "ENTREPOT_NODE"

ANNOTATIONS_MAX_BYTES = 256 * 1024  # of all annotations of one object together; the API server refuses more


@dataclass(frozen=True)
class Site:
    """How the stores of a cluster are set up.

    Attributes:
        socket_folder: folder of the store's socket, the same on every node and in the pods.
        socket: name of the socket in it.
        shared_memory: limit of the memory mounted at ``/dev/shm``, as Kubernetes writes sizes (``"1Gi"``); ``""``: only
            the pod's own memory limit holds; None: nothing is mounted there.
        store_label, store_value: the label of a node that has a store.
        hostname_label: the label by which a pod is drawn to one node.
        zone_label: the label that says in which zone a node is.

    Raises:
        InvalidArgument: a folder that is not absolute, a socket that is a path.
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
                f"the socket's folder is an absolute path without a colon, '..' or a slash at its end, not {folder!r}"
            )
        if not self.socket or "/" in self.socket:
            raise InvalidArgument(f"the socket is a file name in its folder, not {self.socket!r}")

    @property
    def address(self) -> str:
        """What a client connects to."""
        return f"unix://{self.socket_folder}/{self.socket}"
