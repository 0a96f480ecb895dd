"""Data-local scheduling: pods are placed where the objects that they read are.

``inject`` adds node affinity, mounts and environment to one pod, ``inject_document`` to every pod of a manifest.
Neither does any I/O: everything they know about objects and nodes is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_operator.placement.injection.documents import Document as Document
    from entrepot_operator.placement.injection.documents import inject_document as inject_document
    from entrepot_operator.placement.injection.injector import Injection as Injection
    from entrepot_operator.placement.injection.injector import explain as explain
    from entrepot_operator.placement.injection.injector import inject as inject
    from entrepot_operator.placement.names import ClusterConfig as ClusterConfig
    from entrepot_operator.placement.nodes import Node as Node
    from entrepot_operator.placement.warnings import PlacementConflict as PlacementConflict
    from entrepot_operator.placement.warnings import PlacementWarning as PlacementWarning

# The command line imports this package for all of its subcommands, so the rest is loaded on first use.
_SUBMODULES = {
    "ClusterConfig": "names",
    "Document": "entrepot_operator.placement.injection.documents",
    "Injection": "entrepot_operator.placement.injection.injector",
    "Node": "nodes",
    "PlacementConflict": "warnings",
    "PlacementWarning": "warnings",
    "explain": "entrepot_operator.placement.injection.injector",
    "inject": "entrepot_operator.placement.injection.injector",
    "inject_document": "entrepot_operator.placement.injection.documents",
}
__all__ = [
    "ClusterConfig",
    "Document",
    "Injection",
    "Node",
    "PlacementConflict",
    "PlacementWarning",
    "explain",
    "inject",
    "inject_document",
]

__getattr__, __dir__ = lazy_names(__name__, _SUBMODULES)
