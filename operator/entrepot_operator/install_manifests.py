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
_CLUSTER_SCOPED = re.compile(
    r"^kind: (?:ClusterRole|ClusterRoleBinding|MutatingWebhookConfiguration|ValidatingAdmissionPolicy"
    r"|ValidatingAdmissionPolicyBinding)$",
    re.MULTILINE,
)
_PREFIXED_NAME = re.compile(r"^(  name: |  policyName: |  resourceNames: \[)entrepot-", re.MULTILINE)
_LIST_ITEM = re.compile(r"^- (\S+)$", re.MULTILINE)
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGE_NAME = re.compile(r"[\w.\-/:@]{1,512}")


def installation_prefix(namespace: str) -> str:
    """Name prefix of an installation's cluster-scoped objects; there is one installation in a namespace.

    Args:
        namespace: of the installation.
    """
    return "entrepot" if namespace == NAMESPACE else f"entrepot-{namespace}"


def rename_cluster_scoped(text: str, prefix: str) -> str:
    """Rename the cluster-scoped objects in manifests.

    Args:
        text: YAML documents.
        prefix: as returned by :func:`installation_prefix`.
    """
    return "---\n".join(_rename_document(document, prefix) for document in text.split("---\n"))


def _rename_document(document: str, prefix: str) -> str:
    if _CLUSTER_SCOPED.search(document) is None:
        return document
    # The subjects of a binding are service accounts, which are namespaced.
    head, subjects, rest = document.partition("\nsubjects:\n")
    return _PREFIXED_NAME.sub(lambda match: f"{match[1]}{prefix}-", head) + subjects + rest


def files(folder: Path = MANIFESTS) -> Iterator[Path]:
    """The manifest files listed by a kustomization, in order, including those of listed directories.

    Args:
        folder: directory with ``kustomization.yaml``.
    """
    for name in _LIST_ITEM.findall((folder / "kustomization.yaml").read_text(encoding="utf-8")):
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
    if _DNS_LABEL.fullmatch(namespace) is None:
        raise InvalidArgument(f"a namespace must be at most 63 lower-case letters, digits and '-', not {namespace!r}")
    if _IMAGE_NAME.fullmatch(image) is None:
        raise InvalidArgument(f"the image must be a name such as {IMAGE}, not {image!r}")
    folders = [folder.name for folder in sorted(MANIFESTS.iterdir()) if (folder / "kustomization.yaml").is_file()]
    if only is not None and only not in folders:
        raise InvalidArgument(f"no manifests for {only!r}: the parts are {', '.join(folders)}")
    documents = [path.read_text(encoding="utf-8") for path in files(MANIFESTS / only if only else MANIFESTS)]
    joined = "---\n".join(documents).replace(NAMESPACE, namespace)
    return rename_cluster_scoped(joined, installation_prefix(namespace)).replace(f"image: {IMAGE}", f"image: {image}")


def objects(**changes: Any) -> list[dict[str, Any]]:
    """All manifests as mappings; the arguments are those of :func:`text`.

    Raises:
        InvalidArgument: as :func:`text`; or YAML support is not installed.
    """
    from entrepot_operator.placement.formats import manifests

    return [part.content for part in manifests.parse(text(**changes), "the manifests").parts if part.content]
