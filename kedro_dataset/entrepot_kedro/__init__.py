"""Entrepot for Kedro: datasets that are handed over by object ID, through shared memory.

"{name}":
  type: entrepot_kedro.EntrepotDataset
"""

from __future__ import annotations

from entrepot_kedro.dataset import EntrepotDataset

__all__ = ["EntrepotDataset"]
