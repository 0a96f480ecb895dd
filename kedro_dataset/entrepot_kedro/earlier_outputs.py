"""Outputs of the run that a run continues, in what ``session.run()`` returns.

Kedro returns those of the nodes that it has run. The others belong to the run as well, so they would go with its
session, and nobody would have got them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kedro.framework.hooks import hook_impl
from kedro.io import DatasetError

from entrepot_kedro.stored_datasets import stored_datasets
from entrepot_kedro.values.stored_dataset import StoredDataset

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline


class EarlierOutputs:
    """A plugin for one run. Not a part of the plugin's other hooks: kedro-dagster calls them without ``run_result``.

    Args:
        manager: the hook manager with which it is registered, until the run ends.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    @hook_impl(tryfirst=True)  # before the run's session is removed
    def after_pipeline_run(self, run_result: dict[str, Any], pipeline: Pipeline, catalog: Any) -> None:
        """Add outputs that exist to ``run_result``, which is what Kedro returns."""
        self._manager.unregister(self)
        for name, dataset in stored_datasets(catalog, pipeline, pipeline).items():
            if name in pipeline.outputs() and name not in run_result and _is_of_run(dataset) and _exists(dataset):
                run_result[name] = dataset

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Do nothing: the run can be continued in turn."""
        self._manager.unregister(self)


def _is_of_run(dataset: StoredDataset) -> bool:
    return dataset.session.ends_with_run and not dataset.session.is_of_process


def _exists(dataset: StoredDataset) -> bool:
    try:
        return dataset.exists()
    except DatasetError:
        return False  # the store cannot be asked; the run has succeeded without it
