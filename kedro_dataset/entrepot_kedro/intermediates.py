"""Registers datasets without a catalog entry that the project's allow-list sends through the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedro.framework import project
from kedro.io import AbstractDataset, DatasetError
from kedro.pipeline import Pipeline

from entrepot_kedro.allow_list import AllowList
from entrepot_kedro.dataset import EntrepotDataset
from entrepot_kedro.log import logger
from entrepot_kedro.policy.run_context import registered_pipeline
from entrepot_kedro.values.transcoding import plain_name


def register(
    allow_list: AllowList, pipeline: Pipeline, catalog: Any, run_params: Mapping[str, Any], *, all_nodes: bool
) -> dict[str, EntrepotDataset]:
    """Register what the nodes of a run make, if the catalog has neither an entry nor a pattern for it.

    Args:
        allow_list: which of them.
        pipeline: pipeline of the run.
        catalog: catalog of the run.
        run_params: run parameters, as Kedro passes them to hooks.
        all_nodes: also what the other nodes of the project's pipelines make, because they may be rerun.

    Raises:
        DatasetError: the allow-list's arguments for datasets are wrong, or a setting is.

    Returns:
        datasets for free inputs that are not registered: if no earlier run has stored them, Kedro has to report them.
    """
    run_id = str(run_params["run_id"])
    nodes = registered_pipeline(run_params.get("pipeline_names")) + pipeline if all_nodes else pipeline
    produced = {plain_name(name) for name in nodes.all_outputs()}
    _warn_of_unused_patterns(allow_list, pipeline)
    unregistered: dict[str, EntrepotDataset] = {}
    for name in sorted(nodes.datasets()):
        if name in catalog or _is_parameter(name) or not allow_list.allows(name):
            continue
        # As Kedro does it for a catalog entry, so that wrong arguments are reported in the same way.
        config = {"type": EntrepotDataset, "name": name, "run_id": run_id, **allow_list.arguments}
        try:
            dataset: Any = AbstractDataset.from_config(name, config)
        except DatasetError as error:
            if allow_list.arguments:
                raise DatasetError(f"dataset of the allow-list, {dict(allow_list.arguments)}: {error}") from error
            raise
        if plain_name(name) in produced:
            catalog[name] = dataset
        elif name in pipeline.inputs():
            unregistered[name] = dataset
    return unregistered


def _warn_of_unused_patterns(allow_list: AllowList, pipeline: Pipeline) -> None:
    """Warn of patterns that match no dataset of the project, which are probably misspelled."""
    if not allow_list.unused_patterns(pipeline.datasets()):
        return
    names = pipeline.datasets().union(*(each.datasets() for each in project.pipelines.values()))
    for pattern in allow_list.unused_patterns(names):
        logger.warning(
            "Entrepot: the pattern %r of the allow-list matches no dataset of this project's pipelines; what it was "
            "meant for stays in memory",
            pattern,
        )


def _is_parameter(name: str) -> bool:
    return name == "parameters" or name.startswith("params:")
