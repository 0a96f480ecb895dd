"""Cleanup at the end of a run: removes its session, except for values kept by a catalog entry, and failed runs.

    run --succeeded--> its session is removed as soon as nothing in this process holds one of its datasets
         |             (``session.run()`` returns the outputs), at the latest when the process exits
         +-- failed before anything was saved --> its session is removed
         +-- failed --> its session stays until its TTL expires; the log says how to continue or drop it
         +-- killed --> the same, without a log line

Values kept by a catalog entry (``session: ""``, ``versioned: true``, a named session) are in other sessions.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
import weakref
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.phrases import human_bytes
from entrepot_io.connections import scope_store, unshared_store
from kedro.io import DatasetError
from kedro.utils import find_kedro_project

from entrepot_kedro import finished_nodes
from entrepot_kedro.compat.datasets import is_ephemeral
from entrepot_kedro.ended_runs import ENDED_KEY, process_mark
from entrepot_kedro.log import logger
from entrepot_kedro.stored_datasets import stored_datasets
from entrepot_kedro.values.process_session import SessionLocation, remove_session
from entrepot_kedro.values.sessions import is_run_session
from entrepot_kedro.values.stored_dataset import StoredDataset

if TYPE_CHECKING:
    from entrepot import Store
    from kedro.pipeline import Pipeline
    from kedro.pipeline.node import Node

_lock = threading.Lock()
_run_began = 0.0  # when the run began that began last in this process, as time.time(); guarded by _lock


# --- called by the hooks


def on_run_begin() -> None:
    """Reset the state for a run that begins in this process."""
    global _run_began
    finished_nodes.begin_run()
    with _lock:
        _run_began = time.time()


def on_run_checked(pipeline: Pipeline, catalog: Any) -> None:
    """Prepare the sessions of a run, now that it is known which they are."""
    names = {node.name for node in pipeline.nodes}
    for location in _run_sessions(pipeline, catalog):
        finished_nodes.forget(location.scope, location.session, names)


def on_run_success(pipeline: Pipeline, catalog: Any) -> None:
    """Arrange for the session of a successful run to be removed with the last of its datasets."""
    for location, datasets in _run_sessions(pipeline, catalog).items():
        finished_nodes.remove(location.scope, location.session)
        try:
            held = unshared_store(location.address, location.scope, location.session, durable=False)
            _mark_ended(location)
        except EntrepotError as error:
            logger.warning(
                "Entrepot: cannot mark session '%s' for removal; its values stay until it ends: %s",
                location.session,
                error,
            )
            continue
        _SessionRemover(location, datasets, held)


def on_run_failure(pipeline: Pipeline, catalog: Any) -> dict[str, list[str]]:
    """Log what a failed run leaves behind, and how to continue from it or drop it.

    Returns:
        by session, the nodes that a run which continues in it has to start with.
    """
    start_nodes: dict[str, list[str]] = {}
    close_sessions(pipeline, catalog)
    for location, datasets in _run_sessions(pipeline, catalog).items():
        try:
            saved_bytes = _saved_bytes(location)
            if saved_bytes is None:
                finished_nodes.remove(location.scope, location.session)
                continue
            persistent = stored_datasets(catalog, pipeline, pipeline)
            saved = _saved_by_run({name: persistent[name] for name in persistent.keys() - datasets.keys()})
            finished = finished_nodes.finished_nodes(location.scope, location.session)
            nodes = nodes_to_run(pipeline, catalog, datasets, saved, finished)
            outputs = pipeline.from_nodes(*nodes).all_outputs() - datasets.keys() - saved
            existing = sorted(name for name in outputs if _is_left_over(name, catalog))
        except (EntrepotError, DatasetError) as error:
            logger.warning("Entrepot: cannot list the values that this run saved: %s", error)
            continue
        logger.warning(
            "Entrepot: the values that this run computed (%s) are kept. To continue: %sthe same command with "
            '--from-nodes "%s", or with --only-missing-outputs%s; to drop them: entrepot sessions rm %s',
            human_bytes(saved_bytes),
            # A packaged project has no commands but `run`.
            "kedro entrepot resume, or " if find_kedro_project(Path.cwd()) is not None else "",
            ",".join(nodes),
            f" (which leaves as it is what exists already: {', '.join(existing)})" if existing else "",
            shlex.quote(location.session),
        )
        start_nodes[location.session] = nodes
    return start_nodes


def close_sessions(pipeline: Pipeline, catalog: Any) -> None:
    """Close the sessions of a run that has failed, so that another one may go on in them."""
    for datasets in _run_sessions(pipeline, catalog).values():
        for dataset in datasets.values():
            dataset.close_session()


def on_run_refused(pipeline: Pipeline, catalog: Any) -> None:
    """Clean up after a run that was refused before its first node: remove sessions that are empty."""
    for location in _run_sessions(pipeline, catalog):
        try:
            _saved_bytes(location)
        except EntrepotError as error:
            logger.warning(
                "Entrepot: cannot remove session '%s'; it stays until it expires: %s", location.session, error
            )


# --- where a continued run has to start


def nodes_to_run(
    pipeline: Pipeline,
    catalog: Any,
    run_datasets: Mapping[str, StoredDataset],
    saved: Container[str] = (),
    finished: Container[str] = (),
) -> list[str]:
    """Return the nodes that a run must start with to continue in the session of a failed one.

    A node is done if its outputs exist or are no longer needed. For outputs outside the store it is unknown which run
    wrote them, so such a node runs again unless it is known to have finished.

    Args:
        pipeline: pipeline of the failed run.
        catalog: catalog of the run.
        run_datasets: its datasets in the run's session, by name.
        saved: names of other datasets in the store that this run has saved.
        finished: names of nodes that this run has finished.
    """
    makers = {name: node for node in pipeline.nodes for name in node.outputs}
    existing = {name for name, dataset in run_datasets.items() if dataset.outlives_process()}
    rerun_names: set[str] = set()  # names of nodes

    def is_available(name: str, maker: str) -> bool:
        readers = [node.name for node in pipeline.nodes if name in node.inputs]
        if name in run_datasets:
            return name in existing or (bool(readers) and rerun_names.isdisjoint(readers))
        return name in saved or maker in finished

    def missing_makers(inputs: Iterable[str]) -> set[str]:
        return {
            makers[name].name
            for name in inputs
            if name in makers and not _is_persistent(name, catalog, run_datasets, existing)
        }

    for node in reversed(pipeline.nodes):  # readers come before the makers of their inputs
        if (not node.outputs and node.name not in finished) or not all(
            is_available(name, node.name) for name in node.outputs
        ):
            rerun_names.add(node.name)
    while True:
        for node in reversed(pipeline.nodes):
            if node.name in rerun_names:
                rerun_names.update(missing_makers(node.inputs))
        start_nodes = _first_of(pipeline, makers, rerun_names)
        # Kedro then runs all nodes after these, also those that are done and whose inputs were released.
        further = missing_makers(pipeline.from_nodes(*start_nodes).inputs()) if start_nodes else set[str]()
        if further <= rerun_names:
            return start_nodes
        rerun_names |= further


def _first_of(pipeline: Pipeline, makers: Mapping[str, Node], rerun_names: Container[str]) -> list[str]:
    """Return those of the nodes to run that come after none of the others."""
    downstream: set[str] = set()
    start_nodes: list[str] = []
    for node in pipeline.nodes:
        parents = {makers[name].name for name in node.inputs if name in makers}
        if any(parent in rerun_names or parent in downstream for parent in parents):
            downstream.add(node.name)
        elif node.name in rerun_names:
            start_nodes.append(node.name)
    return start_nodes


def _is_persistent(name: str, catalog: Any, run_datasets: Mapping[str, StoredDataset], existing: set[str]) -> bool:
    """Return whether another run can find a dataset that this one made."""
    if name in run_datasets:
        return name in existing
    return name in catalog and not is_ephemeral(catalog.get(name))


def _is_left_over(name: str, catalog: Any) -> bool:
    """Return whether a run that failed has left an output as an earlier one saved it: in the store, or a file."""
    return name in catalog and not is_ephemeral(catalog.get(name)) and bool(catalog.exists(name))


# --- internal


def _saved_by_run(datasets: Mapping[str, StoredDataset]) -> set[str]:
    """Return the datasets whose values were saved since the run began: by it, in this process or in a worker."""
    with _lock:
        began = _run_began
    saved: set[str] = set()
    for name, dataset in datasets.items():
        with suppress(ObjectNotFound):
            if dataset.store().info(dataset.reference().id).created >= began:
                saved.add(name)
    return saved


def _saved_bytes(location: SessionLocation) -> int | None:
    """Return the size of what a run saved in its session; None: nothing, and the session is removed."""
    store = scope_store(location.address, location.scope, location.storage_options).session(location.session)
    saved = store.list(session=location.session)
    if not saved:
        store.remove_session(location.session)
        return None
    return sum(info.nbytes for info in saved)


class _SessionRemover:
    """Removes a session once all datasets that may still be read from it have been collected.

    Args:
        location: the session.
        datasets: those that may be read.
        held: the session, open, so that it is in use until then.
    """

    def __init__(self, location: SessionLocation, datasets: dict[str, StoredDataset], held: Store) -> None:
        self._location = location
        self._held = held
        self._pid = os.getpid()
        # Held rather than looked up when needed: a dataset may be collected anywhere, even while a lock is held.
        self._store = scope_store(location.address, location.scope, location.storage_options)
        self._remaining = {id(dataset) for dataset in datasets.values()}
        for dataset in datasets.values():
            weakref.finalize(dataset, self._on_collected, id(dataset))

    def _on_collected(self, dataset_id: int) -> None:
        self._remaining.discard(dataset_id)
        if self._remaining or os.getpid() != self._pid:
            return
        self._held.close()
        with suppress(EntrepotError):  # otherwise its TTL ends it, or `entrepot gc`, which recognizes its mark
            if not self._store.closed:
                self._store.remove_session(self._location.session)
            else:
                remove_session(self._location, self._store.address)


def _run_sessions(pipeline: Pipeline, catalog: Any) -> dict[SessionLocation, dict[str, StoredDataset]]:
    """Return the sessions that belong to this run only, each with its datasets."""
    datasets_by_session: dict[SessionLocation, dict[str, StoredDataset]] = {}
    for name, dataset in stored_datasets(catalog, pipeline, pipeline).items():
        session = dataset.session
        if not session.is_of_process and (session.ends_with_run or is_run_session(session.name)):
            location = SessionLocation(dataset.address, dataset.scope, session.name, dataset.storage_options)
            datasets_by_session.setdefault(location, {})[name] = dataset
    return datasets_by_session


def _mark_ended(location: SessionLocation) -> None:
    """Leave a mark for ``entrepot gc``, in case this process is killed before it removes the session."""
    store = scope_store(location.address, location.scope, location.storage_options).session(location.session)
    oid = ObjectID.derive(location.scope, location.session, ENDED_KEY)
    raw_objects.put_record(store, oid, json.dumps(process_mark()).encode())
