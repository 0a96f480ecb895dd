"""Pods that follow the data: where objects are decides where the pods that read them run.

``inject`` puts node affinity, mounts and environment into one pod, ``inject_document`` into every pod of a manifest.
Neither asks anybody anything: what they know of objects and nodes is given to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy import lazy_names

if TYPE_CHECKING:
    from entrepot_io.placement.documents import Document as Document
    from entrepot_io.placement.documents import inject_document as inject_document
    from entrepot_io.placement.injecting import Injection as Injection
    from entrepot_io.placement.injecting import explain as explain
    from entrepot_io.placement.injecting import inject as inject
    from entrepot_io.placement.names import Site as Site
    from entrepot_io.placement.nodes import Node as Node
    from entrepot_io.placement.reasons import PlacementConflict as PlacementConflict
    from entrepot_io.placement.reasons import Reason as Reason

# The command line imports this package for each of its verbs: the rest comes with the first use.
_HOME = {
    "Document": "documents",
    "Injection": "injecting",
    "Node": "nodes",
    "PlacementConflict": "reasons",
    "Reason": "reasons",
    "Site": "names",
    "explain": "injecting",
    "inject": "injecting",
    "inject_document": "documents",
}
__all__ = [
    "Document",
    "Injection",
    "Node",
    "PlacementConflict",
    "Reason",
    "Site",
    "explain",
    "inject",
    "inject_document",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
