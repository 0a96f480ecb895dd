"""Check of a pipeline's inputs that a catalog pattern assigns to the store, or that belong to a run.

Kedro assumes that every name with an entry, or matching a pattern, exists. With a catch-all pattern that is every name,
so a mistyped one would be noticed only by the node that reads it, after all nodes before it have run. And values that
belong to a run are gone after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from kedro.framework import project
from kedro.io import DatasetError

from entrepot_kedro.log import logger
from entrepot_kedro.stored_datasets import stored_dataset
from entrepot_kedro.values.transcoding import SEPARATOR, plain_name

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline


def names_in_run(input_names: Iterable[str], catalog: Any) -> set[str]:
    """Return those inputs of a pipeline whose values belong to the run."""
    return {
        name
        for name in input_names
        if name in catalog
        and (dataset := stored_dataset(catalog, name)) is not None
        and dataset.session.ends_with_run
        and not dataset.session.is_of_process
    }


def check_inputs(input_names: Collection[str], catalog: Any, *, can_recompute: bool) -> None:
    """Report inputs that do not exist before the first node runs, as Kedro does without patterns.

    Args:
        input_names: free inputs of the pipeline that match patterns of the catalog, or belong to the run.
        catalog: catalog of the run.
        can_recompute: whether a policy may rerun the nodes that make an input, even in another part of the project's
            pipelines.

    Raises:
        ValueError: nothing of an input's name is in the store.
    """
    if can_recompute:
        produced_names = {
            plain_name(name) for pipeline in project.pipelines.values() for name in pipeline.all_outputs()
        }
        input_names = {name for name in input_names if plain_name(name) not in produced_names}
    missing = {name for name in input_names if _is_absent(catalog, name)}
    if missing:
        raise ValueError(
            f"Pipeline input(s) {missing} not found in the {type(catalog).__name__}: they are Entrepot datasets by a "
            "pattern or an entry of the catalog, but are not in the store, and no node of this run produces them. "
            "Values that belong to a run are deleted when it succeeds: run their nodes as well (--from-nodes), or "
            'keep them (session: "" in their entry)'
        )


def drop_transcoded(pipeline: Pipeline, catalog: Any) -> None:
    """Drop intermediate values with transcoded names after a successful run.

    Kedro releases ``x@pandas`` when it has been saved, because nobody loads that name, and ``x@polars`` after its last
    load. Both are one value, which is dropped here once the run is over.
    """
    for name in pipeline.datasets() - pipeline.outputs() - pipeline.inputs():
        dataset = stored_dataset(catalog, name) if SEPARATOR in name else None
        if dataset is not None and dataset.session.ends_with_run:
            try:
                dataset.drop()
            except EntrepotError as error:
                logger.warning("Entrepot: cannot drop %s; it stays until its session ends: %s", name, error)


def _is_absent(catalog: Any, name: str) -> bool:
    dataset = stored_dataset(catalog, name)
    try:
        return dataset is not None and not dataset.exists()
    except DatasetError:
        return False  # the store cannot be asked; the load will report why
