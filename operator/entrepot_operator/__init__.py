"""Entrepot on Kubernetes: data-local scheduling of pods. Nothing in this package is used outside a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_operator.placement import ClusterConfig as ClusterConfig
    from entrepot_operator.placement import Injection as Injection
    from entrepot_operator.placement import Node as Node
    from entrepot_operator.placement import PlacementConflict as PlacementConflict
    from entrepot_operator.placement import explain as explain
    from entrepot_operator.placement import inject as inject
    from entrepot_operator.placement import inject_document as inject_document

# The command line imports this package for all of its subcommands, so the rest is loaded on first use.
__all__ = ["ClusterConfig", "Injection", "Node", "PlacementConflict", "explain", "inject", "inject_document"]

__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(__all__, "entrepot_operator.placement"), deprecated={"Site": "ClusterConfig"}
)
