"""The dataset inside a cached one, and datasets whose values outlive their run."""

from __future__ import annotations

from typing import Any

from kedro.io import CachedDataset


def uncached(dataset: Any) -> Any:
    """Return the dataset that a ``CachedDataset`` caches; any other dataset is returned as it is."""
    return dataset._dataset if type(dataset) is CachedDataset else dataset


def declare_ephemeral(dataset: Any, ephemeral: bool) -> None:
    """Tell Kedro whether a dataset's value ends with its run: another run then has to recompute it."""
    dataset._EPHEMERAL = ephemeral


def is_ephemeral(dataset: Any) -> bool:
    """Return whether a dataset's value ends with its run, as far as Kedro knows."""
    return bool(getattr(dataset, "_EPHEMERAL", False))
