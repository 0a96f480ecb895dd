"""Entrepot plugin for Kedro: datasets passed between nodes by object ID, through shared memory.

"{name}":
  type: entrepot_kedro.EntrepotDataset

Importing this package imports little, because Kedro imports it for the hooks of every project, whether the project uses
the dataset or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_kedro.catalog_names import catalog_config as catalog_config
    from entrepot_kedro.dataset import EntrepotDataset as EntrepotDataset
    from entrepot_kedro.placement import node_annotations as node_annotations
    from entrepot_kedro.runner import EntrepotParallelRunner as EntrepotParallelRunner

_HOME = {
    "EntrepotDataset": "dataset",
    "EntrepotParallelRunner": "runner",
    "catalog_config": "catalog_names",
    "node_annotations": "placement",
}
__all__ = ["EntrepotDataset", "EntrepotParallelRunner", "catalog_config", "node_annotations"]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
