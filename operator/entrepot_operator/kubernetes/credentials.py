"""Finding the API server and its credentials: in a pod from its service account, elsewhere from a kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials as ClusterCredentials

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster() -> ClusterCredentials | None:
    """Access through the service account of this process's pod; None: there is none.

    Raises:
        InvalidArgument: the account's files cannot be read.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (ACCOUNT / "token").exists():
        return None
    named = f"[{host}]" if ":" in host else host
    try:
        ca = (ACCOUNT / "ca.crt").read_text(encoding="ascii")
        namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the pod's service account cannot be used: {error}") from error
    return ClusterCredentials(f"https://{named}:{port}", namespace, ca=ca, token_file=ACCOUNT / "token")


def find(kubeconfig: str | None = None, context: str | None = None) -> ClusterCredentials:
    """Find access as ``kubectl`` does: an explicit kubeconfig, the pod's service account, the user's kubeconfig.

    Args:
        kubeconfig: a file; default: KUBECONFIG, or ``~/.kube/config``.
        context: which of its contexts; default: the current one.

    Raises:
        InvalidArgument: none is found, or it cannot be used; the message says why.
    """
    if kubeconfig is None and context is None and not os.environ.get("KUBECONFIG"):
        credentials = in_cluster()
        if credentials is not None:
            return credentials
    from entrepot_operator.kubernetes import kubeconfig as files  # not in a pod, which has no use for it

    return files.read(kubeconfig, context)
