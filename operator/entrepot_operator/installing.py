"""All manifests of an installation, as kustomize would list them: ``entrepot manifests`` prints them for kubectl.

``manifests/`` is the one source of them; the Helm chart is made from the same files.
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

# What has no namespace of its own is named by that of its installation.
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
    """What the names of an installation's objects begin with that have no namespace: there is one in a namespace.

    Args:
        namespace: that it is in.
    """
    return "entrepot" if namespace == NAMESPACE else f"entrepot-{namespace}"


def named(text: str, prefix: str) -> str:
    """Manifests with other names of what has no namespace.

    Args:
        text: documents of YAML.
        prefix: as :func:`installation` has it.
    """
    return "---\n".join(_renamed(one, prefix) for one in text.split("---\n"))


def _renamed(document: str, prefix: str) -> str:
    if _CLUSTER_WIDE.search(document) is None:
        return document
    # Subjects of a binding are accounts, which have a namespace.
    own, subjects, rest = document.partition("\nsubjects:\n")
    return _NAMED.sub(lambda found: f"{found[1]}{prefix}-", own) + subjects + rest


def files(folder: Path = MANIFESTS) -> Iterator[Path]:
    """The files of manifests that a kustomization names, in its order, and those of the folders that it names.

    Args:
        folder: with ``kustomization.yaml``.
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
        namespace: in which operator and stores run.
        image: of the operator.
        only: one of the folders, such as ``"webhook"``.

    Raises:
        InvalidArgument: a name that Kubernetes would not take, or a folder that is none.
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
        InvalidArgument: as :func:`text`; or YAML cannot be read here.
    """
    from entrepot_io.placement import manifests

    return [part.content for part in manifests.read(text(**changes), "the manifests").parts if part.content]
