"""Data-local scheduling: pods are placed where the objects that they read are.

``inject`` adds node affinity, mounts and environment to one pod, ``inject_document`` to every pod of a manifest.
Neither does any I/O: everything they know about objects and nodes is passed in.
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

# The command line imports this package for all of its subcommands, so the rest is loaded on first use.
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
