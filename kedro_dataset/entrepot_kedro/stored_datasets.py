"""The datasets of a catalog that are in the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from entrepot.errors import EntrepotError
from entrepot.garbage import remove_session, unused_sessions
from entrepot_io.connections import scope_store
from kedro.io import DatasetError
from kedro.pipeline import Pipeline

from entrepot_kedro.compat.datasets import uncached
from entrepot_kedro.values.stored_dataset import StoredDataset
from entrepot_kedro.values.transcoding import plain_name


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


def join_run(names: Iterable[str], catalog: Any, run_id: str) -> None:
    """Let the datasets that belong to no run yet, and that no session is set for, belong to a run that begins.

    Args:
        names: names of datasets; those that the catalog does not have, or not in the store, are ignored.
        catalog: catalog of the run.
        run_id: ID of the run.
    """
    for name in names:
        if name in catalog and (dataset := stored_dataset(catalog, name)) is not None:
            dataset.join_run(run_id, name)


def one_per_session(datasets: Mapping[str, StoredDataset]) -> list[StoredDataset]:
    """Return one of the datasets, which have their names, for each session that they are in."""
    by_session = {(dataset.address, dataset.scope, dataset.session.name): dataset for dataset in datasets.values()}
    return list(by_session.values())


def resume_session(datasets: Iterable[StoredDataset], session: str) -> None:
    """Let datasets of a run that begins use the session of an earlier one instead of its own.

    Looking for their values has created the run's own session, which is removed, as nobody else knows it.

    Args:
        datasets: datasets whose values belong to the run.
        session: name of the earlier run's session.
    """
    unneeded: dict[tuple[str | None, str, str], StoredDataset] = {}
    for dataset in datasets:
        own = dataset.session
        dataset.resume_session(session)
        if dataset.session != own:
            unneeded[dataset.address, dataset.scope, own.name] = dataset
    for (address, scope, name), dataset in unneeded.items():
        with suppress(EntrepotError):  # otherwise its TTL ends it
            store = scope_store(address, scope, dataset.storage_options)
            for unused, last_used in unused_sessions(store, scope).items():
                if unused == name:
                    remove_session(store, scope, name, last_used)


def declare_existing(pipeline: Pipeline, datasets: Mapping[str, StoredDataset]) -> None:
    """Tell Kedro which values exist, so that ``--only-missing-outputs`` runs a node only if its outputs are needed.

    Kedro runs the node of every missing persistent dataset, and of every missing non-persistent one that a running node
    reads. So existing values are declared persistent; missing ones are made only if they are read or are outputs of the
    pipeline. Kedro does not see that a node reads ``d@pandas`` where another one makes ``d@polars``, so what is read
    under another transcoded name is made if it is missing.

    Args:
        pipeline: pipeline of the run.
        datasets: its datasets in the store, by name.
    """
    outputs, configured_session = pipeline.outputs(), os.environ.get("ENTREPOT_SESSION")
    read_under_other_names = {plain_name(name) for name in pipeline.all_inputs() - pipeline.all_outputs()}
    for name in pipeline.all_outputs() & datasets.keys():
        dataset = datasets[name]
        # A dataset that the catalog gives a session of its own is persistent whether it is read now or not.
        if dataset.session.ends_with_run or (configured_session and dataset.session.name == configured_session):
            is_needed = name in outputs or plain_name(name) in read_under_other_names
            dataset.declare_persistent(is_needed or dataset.exists())


def _has_stored_type(catalog: Any, name: str) -> bool:
    try:
        type_name = catalog.get_type(name)
    except DatasetError:
        return False  # its class cannot be imported
    module, _, qualified = (type_name or "").rpartition(".")
    dataset_class = getattr(sys.modules.get(module), qualified, None)
    return isinstance(dataset_class, type) and issubclass(dataset_class, StoredDataset)
