"""The CRDs of the group ``entrepot.dev``; the files under ``manifests/crds`` are their single source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MANIFESTS = Path(__file__).parent / "manifests"
FILES = ("stores.yaml", "localobjects.yaml", "globalobjects.yaml", "directoryshards.yaml")


def text() -> str:
    """All CRDs as YAML documents, for ``kubectl apply --server-side -f -``."""
    return "---\n".join((MANIFESTS / "crds" / name).read_text(encoding="utf-8") for name in FILES)


def definitions() -> list[dict[str, Any]]:
    """All CRDs as mappings.

    Raises:
        InvalidArgument: YAML support is not installed; the message says what to install.
    """
    from entrepot_operator.placement.formats import manifests

    return [part.content for part in manifests.parse(text(), "the CRDs").parts if part.content is not None]
