"""Kedro's check of a pipeline's inputs, for those that a pattern would give to the store.

Kedro takes every name that a pattern matches for one that is there. With a catch-all pattern that is every name, so one
that is mistyped would be seen only by the node that reads it, after all nodes before it ran.
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
    """Say before the first node which inputs are nowhere, as Kedro does where there is no pattern.

    Args:
        wanted: free inputs of the pipeline that patterns of the catalog match.
        catalog: of the run.
        remade: whether a policy may have the nodes run again that make an input, be they of another part of the
            project's pipelines.

    Raises:
        ValueError: an input matches a pattern of the catalog, and nothing of its name is in the store.
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
    """Drop what a run that ended well handed over under transcoded names, and nobody reads after it.

    Kedro releases ``x@pandas`` when it was saved, because nobody loads that name, and ``x@polars`` after its last load;
    the one value of both goes when all of them are over.
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
        return False  # the store cannot be asked: the load says why
