"""Check of a pipeline's inputs that a catalog pattern assigns to the store.

Kedro assumes that every name matching a pattern exists. With a catch-all pattern that is every name, so a mistyped one
would be noticed only by the node that reads it, after all nodes before it have run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from kedro.framework import project
from kedro.io import CachedDataset, DatasetError

from entrepot_kedro.dataset import EntrepotDataset
from entrepot_kedro.policies import logger
from entrepot_kedro.transcoding import SEPARATOR, plain_name

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline


def check_inputs(wanted: Collection[str], catalog: Any, *, remade: bool) -> None:
    """Report inputs that do not exist before the first node runs, as Kedro does without patterns.

    Args:
        wanted: free inputs of the pipeline that match patterns of the catalog.
        catalog: catalog of the run.
        remade: whether a policy may rerun the nodes that make an input, even in another part of the project's
            pipelines.

    Raises:
        ValueError: an input matches a pattern of the catalog, and nothing of that name is in the store.
    """
    if remade:
        known = {plain_name(name) for one in project.pipelines.values() for name in one.all_outputs()}
        wanted = {name for name in wanted if plain_name(name) not in known}
    missing = {name for name in wanted if _is_absent(catalog, name)}
    if missing:
        raise ValueError(
            f"Pipeline input(s) {missing} not found in the {type(catalog).__name__}: they match a pattern of the "
            "catalog that gives them to Entrepot, but nothing of that name is in the store, and no node of this run "
            "makes it"
        )


def drop_transcoded(pipeline: Pipeline, catalog: Any) -> None:
    """Drop intermediate values with transcoded names after a successful run.

    Kedro releases ``x@pandas`` when it has been saved, because nobody loads that name, and ``x@polars`` after its last
    load. Both are one value, which is dropped here once the run is over.
    """
    for name in pipeline.datasets() - pipeline.outputs() - pipeline.inputs():
        dataset = _stored(catalog, name) if SEPARATOR in name else None
        if dataset is not None and dataset.session.ends_with_run:
            try:
                dataset.drop()
            except EntrepotError as error:
                logger.warning("Entrepot: %s stays until its session ends: %s", name, error)


def _stored(catalog: Any, name: str) -> EntrepotDataset | None:
    dataset = catalog.get(name)
    if type(dataset) is CachedDataset:
        dataset = dataset._dataset
    return dataset if isinstance(dataset, EntrepotDataset) else None


def _is_absent(catalog: Any, name: str) -> bool:
    dataset = _stored(catalog, name)
    try:
        return dataset is not None and not dataset.exists()
    except DatasetError:
        return False  # the store cannot be asked; the load will report why
