"""The Kubernetes pod that a client runs in: whether there is one, and where its node's store should be."""

from __future__ import annotations

import os
from pathlib import Path

# Socket of the node's store in injected pods. Must equal the one in entrepot_operator.placement.names, which the core
# cannot import; a test compares them.
SOCKET = Path("/run/entrepot/store.sock")
NODE_VARIABLE = "ENTREPOT_NODE"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CGROUP = Path("/proc/self/cgroup")


def in_pod() -> bool:
    """Return whether this process runs in a Kubernetes pod.

    The environment tells, unless it was cleared; then the mounted service account or the control group does.
    """
    if os.environ.get("KUBERNETES_SERVICE_HOST") or _ACCOUNT.is_dir():
        return True
    try:
        return "kubepods" in _CGROUP.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def describe_node() -> str:
    """Describe the pod's node for a message, by name if known."""
    name = os.environ.get(NODE_VARIABLE)
    return f"node {name!r}" if name else "the pod's node"


def explain_not_configured() -> str:
    """Explain why a client in a pod without a configured store has none, and what to do."""
    reason = "no store is configured in this pod, and a private one would end with the pod"
    if SOCKET.is_socket():
        return f"{reason}: the store of {describe_node()} is mounted here; set ENTREPOT_ADDRESS=unix://{SOCKET}"
    return (
        f"{reason}: the store of {describe_node()} should listen at unix://{SOCKET}, which is not mounted here; "
        f"'entrepot inject' adds the mount and ENTREPOT_ADDRESS to a manifest, or mount the node's {SOCKET.parent}"
    )


def explain_not_answering(path: Path) -> str:
    """Explain why the store configured for a client in a pod does not answer, and what to do.

    Args:
        path: the store's socket.
    """
    if path.is_socket():
        return f"the store of {describe_node()} has ended or is restarting: check its DaemonSet's pod on that node"
    if path.parent.is_dir():
        return (
            f"{path.parent} exists but contains no socket: {describe_node()} has no store, or the wrong folder is "
            "mounted; pods with entrepot.dev/store: required are scheduled only to nodes that have a store"
        )
    return f"{path.parent} is not mounted in this pod: add it with 'entrepot inject', or mount the node's folder"
