"""Opens a directory in Kubernetes by its URL, ``kubernetes://[NAMESPACE]/NAME``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult

from entrepot.errors import InvalidArgument
from entrepot_cluster.directory.backends.interface import Backend

OPTIONS = frozenset({"kubeconfig", "context"})
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def open_backend(parts: SplitResult, name: str, options: Mapping[str, str], timeout: float) -> Backend:
    """Open the directory; see the entry-point group ``entrepot.directories``.

    Args:
        parts: of the URL; the host is the namespace. Default: the pod's, or the kubeconfig's.
        name: the cluster's name.
        options: ``kubeconfig`` and ``context``, as for ``kubectl``.
        timeout: seconds for one request.

    Raises:
        InvalidArgument: the URL is invalid, or there are no credentials; or the Kubernetes client is not installed.
    """
    shown = parts.geturl()
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{shown!r}: in Kubernetes, a cluster's name has 1 to 40 lower-case letters, digits and '-', but it is "
            f"{name!r}"
        )
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise InvalidArgument(
            f"{shown!r} has the unknown option {unknown[0]!r}; allowed with kubernetes: {', '.join(sorted(OPTIONS))}"
        )
    if parts.netloc and _DNS_LABEL.fullmatch(parts.netloc) is None:
        raise InvalidArgument(
            f"{shown!r} must begin with a namespace, kubernetes://NAMESPACE/NAME, but {parts.netloc!r} is none"
        )
    from entrepot_operator.directory.backend import KubernetesBackend
    from entrepot_operator.kubernetes.credentials import find

    credentials = find(options.get("kubeconfig"), options.get("context"))
    return KubernetesBackend(credentials, parts.netloc or credentials.namespace, name, timeout)
