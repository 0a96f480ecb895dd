"""The dataset inside a cached one, and datasets whose values outlive their run."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from kedro.io import CachedDataset


def uncached(dataset: Any) -> Any:
    """Return the dataset that a ``CachedDataset`` caches; any other dataset is returned as it is."""
    return dataset._dataset if type(dataset) is CachedDataset else dataset


def is_cache_type(dataset_type: Any) -> bool:
    """Return whether the ``type`` of a catalog's entry, a class or its name, is Kedro's ``CachedDataset``."""
    if isinstance(dataset_type, type):
        return issubclass(dataset_type, CachedDataset)
    names = ("CachedDataset", "cached_dataset.CachedDataset")
    return dataset_type in (*names, *(f"kedro.io.{name}" for name in names))


class EphemeralByState:
    """Base of a dataset whose value may or may not be there for the next run, which only the dataset itself knows.

    Kedro asks when it decides which nodes ``--only-missing-outputs`` runs, and from which nodes to resume.
    """

    if not TYPE_CHECKING:  # for Kedro's own datasets it is an attribute, which a property may not replace

        @property
        def _EPHEMERAL(self) -> bool:  # noqa: N802 (Kedro's name)
            return self.ends_with_its_run()

    @abstractmethod
    def ends_with_its_run(self) -> bool:
        """Return whether another run has to recompute the value."""


def is_ephemeral(dataset: Any) -> bool:
    """Return whether a dataset's value ends with its run, as far as Kedro knows."""
    return bool(getattr(dataset, "_EPHEMERAL", False))
