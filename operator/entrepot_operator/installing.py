"""All manifests of an installation, in kustomize's order: ``entrepot manifests`` prints them for kubectl.

``manifests/`` is their single source; the Helm chart is generated from the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from entrepot.errors import InvalidArgument

MANIFESTS = Path(__file__).parent / "manifests"
NAMESPACE = "entrepot-system"
IMAGE = "entrepot:0.1.0"

# Cluster-scoped objects are named after the namespace of their installation.
_CLUSTER_WIDE = re.compile(
    r"^kind: (?:ClusterRole|ClusterRoleBinding|MutatingWebhookConfiguration|ValidatingAdmissionPolicy"
    r"|ValidatingAdmissionPolicyBinding)$",
    re.MULTILINE,
)
_NAMED = re.compile(r"^(  name: |  policyName: |  resourceNames: \[)entrepot-", re.MULTILINE)
_LIST = re.compile(r"^- (\S+)$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[\w.\-/:@]{1,512}")


def installation(namespace: str) -> str:
    """Name prefix of an installation's cluster-scoped objects; there is one installation in a namespace.

    Args:
        namespace: of the installation.
    """
    return "entrepot" if namespace == NAMESPACE else f"entrepot-{namespace}"


def named(text: str, prefix: str) -> str:
    """Rename the cluster-scoped objects in manifests.

    Args:
        text: YAML documents.
        prefix: as returned by :func:`installation`.
    """
    return "---\n".join(_renamed(one, prefix) for one in text.split("---\n"))


def _renamed(document: str, prefix: str) -> str:
    if _CLUSTER_WIDE.search(document) is None:
        return document
    # The subjects of a binding are service accounts, which are namespaced.
    own, subjects, rest = document.partition("\nsubjects:\n")
    return _NAMED.sub(lambda found: f"{found[1]}{prefix}-", own) + subjects + rest


def files(folder: Path = MANIFESTS) -> Iterator[Path]:
    """The manifest files listed by a kustomization, in order, including those of listed directories.

    Args:
        folder: directory with ``kustomization.yaml``.
    """
    for name in _LIST.findall((folder / "kustomization.yaml").read_text(encoding="utf-8")):
        path = folder / name
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def text(*, namespace: str = NAMESPACE, image: str = IMAGE, only: str | None = None) -> str:
    """All manifests as YAML documents.

    Args:
        namespace: of the operator and the stores.
        image: of the operator.
        only: one of the directories, such as ``"webhook"``.

    Raises:
        InvalidArgument: a name that Kubernetes would reject, or an unknown directory.
    """
    if _NAME.fullmatch(namespace) is None:
        raise InvalidArgument(f"a namespace has lower-case letters, digits and '-', at most 63, not {namespace!r}")
    if _IMAGE.fullmatch(image) is None:
        raise InvalidArgument(f"an image is a name such as {IMAGE}, not {image!r}")
    folders = [one.name for one in sorted(MANIFESTS.iterdir()) if (one / "kustomization.yaml").is_file()]
    if only is not None and only not in folders:
        raise InvalidArgument(f"there are manifests of {', '.join(folders)}, not of {only!r}")
    found = [path.read_text(encoding="utf-8") for path in files(MANIFESTS / only if only else MANIFESTS)]
    joined = "---\n".join(found).replace(NAMESPACE, namespace)
    return named(joined, installation(namespace)).replace(f"image: {IMAGE}", f"image: {image}")


def objects(**changes: Any) -> list[dict[str, Any]]:
    """All manifests as mappings; the arguments are those of :func:`text`.

    Raises:
        InvalidArgument: as :func:`text`; or YAML support is not installed.
    """
    from entrepot_io.placement import manifests

    return [part.content for part in manifests.read(text(**changes), "the manifests").parts if part.content]
