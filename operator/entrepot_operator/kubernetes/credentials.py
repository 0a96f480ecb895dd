"""Finding the API server and its credentials: in a pod from its service account, elsewhere from a kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes import kubeconfig as files
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials as ClusterCredentials
from entrepot_operator.kubernetes.official import ConfigException, Configuration, incluster_config


def in_cluster() -> ClusterCredentials | None:
    """Access through the service account of this process's pod; None: there is none.

    Raises:
        InvalidArgument: the account's files cannot be read.
    """
    account = Path(incluster_config.SERVICE_TOKEN_FILENAME)
    if not os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME) or not account.exists():
        return None
    configuration = Configuration()
    try:
        incluster_config.load_incluster_config(configuration)  # rereads the token every minute
        namespace = account.with_name("namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the pod's service account cannot be used: {error}") from error
    return ClusterCredentials(configuration, namespace)


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
    return files.read(kubeconfig, context)
