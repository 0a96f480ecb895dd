"""The datasets of a catalog that are in the store."""

from __future__ import annotations

import sys
from typing import Any

from kedro.io import DatasetError
from kedro.pipeline import Pipeline

from entrepot_kedro.compat.datasets import uncached
from entrepot_kedro.values.stored_dataset import StoredDataset


def stored_dataset(catalog: Any, name: str) -> StoredDataset | None:
    """Return a dataset of a catalog, without a cache around it; None: it is not in the store.

    Args:
        catalog: catalog of the run; a dataset that matches a pattern is created now.
        name: name of the dataset.
    """
    dataset = uncached(catalog.get(name))
    return dataset if isinstance(dataset, StoredDataset) else None


def stored_datasets(catalog: Any, pipeline: Pipeline, executed: Pipeline) -> dict[str, StoredDataset]:
    """Return the datasets of a pipeline that are in the store, by their names in the catalog.

    Args:
        catalog: catalog of the run; datasets that match a pattern are created now, as the runner would do.
        pipeline: pipeline with the datasets.
        executed: the part of it whose datasets the runner creates anyway. Of the others, only those in the store are
            created: the packages of others may not even be installed here.
    """
    datasets: dict[str, StoredDataset] = {}
    executed_names = executed.datasets()
    for name in sorted(pipeline.datasets()):
        if name not in catalog or (name not in executed_names and not _has_stored_type(catalog, name)):
            continue
        dataset = stored_dataset(catalog, name)
        if dataset is not None:
            datasets[name] = dataset
    return datasets


def _has_stored_type(catalog: Any, name: str) -> bool:
    try:
        type_name = catalog.get_type(name)
    except DatasetError:
        return False  # its class cannot be imported
    module, _, qualified = (type_name or "").rpartition(".")
    dataset_class = getattr(sys.modules.get(module), qualified, None)
    return isinstance(dataset_class, type) and issubclass(dataset_class, StoredDataset)
