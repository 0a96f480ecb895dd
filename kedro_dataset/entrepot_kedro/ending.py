"""Cleanup at the end of a run: removes its session, except for values kept by a catalog entry, and failed runs.

    run --succeeded--> its session is removed as soon as nothing in this process holds one of its datasets
         |             (``session.run()`` returns the outputs), at the latest when the process exits
         +-- failed before anything was saved --> its session is removed
         +-- failed --> its session stays until its TTL expires; the log says how to continue or drop it
         +-- killed --> the same, without a log line

Values kept by a catalog entry (``session: ""``, ``versioned: true``, a named session) are in other sessions.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot import parts
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot_io.connections import scope_store
from entrepot_io.describe import human_bytes

from entrepot_kedro.ended_runs import ENDED_KEY, process_mark
from entrepot_kedro.places import PROCESS_SESSION, is_run_session
from entrepot_kedro.policies import logger

if TYPE_CHECKING:
    from kedro.pipeline import Pipeline

    from entrepot_kedro.dataset import EntrepotDataset

_lock = threading.Lock()
_done: set[str] = set()  # nodes of this process's run that succeeded; guarded by _lock
_watched: set[tuple[str | None, str]] = set()  # (address, scope) pairs with values of this process; guarded by _lock


@dataclass(frozen=True)
class Kept:
    """A session of a store."""

    address: str | None
    scope: str
    session: str


# --- called by the hooks


def begun() -> None:
    """Reset the state for a run that begins in this process."""
    with _lock:
        _done.clear()


def node_ended(name: str) -> None:
    """Record that a node succeeded in this process; nodes in worker processes are not known here."""
    with _lock:
        _done.add(name)


def ended_well(pipeline: Pipeline, catalog: Any) -> None:
    """Arrange for the session of a successful run to be removed with the last of its datasets."""
    for kept, datasets in _run_sessions(pipeline, catalog).items():
        try:
            _mark(kept)
        except EntrepotError as error:
            logger.warning("Entrepot: values of this run stay until session '%s' ends: %s", kept.session, error)
            continue
        _Ending(kept, datasets)


def failed(pipeline: Pipeline, catalog: Any) -> None:
    """Log what a failed run leaves behind, and how to continue from it or drop it."""
    for kept, datasets in _run_sessions(pipeline, catalog).items():
        try:
            saved = _saved(kept)
            if not saved:
                continue
            nodes = nodes_to_run(pipeline, catalog, datasets)
        except EntrepotError as error:
            logger.warning("Entrepot: what is left of this run cannot be looked at: %s", error)
            continue
        logger.warning(
            "Entrepot: what this run computed (%s) is kept. To go on, run the same command with ENTREPOT_SESSION=%s "
            'and --from-nodes "%s"; to drop it: entrepot sessions rm %s. Use this instead of the --from-nodes that '
            "Kedro suggests: Kedro does not know what the store kept, and begins with nodes that need not run again",
            human_bytes(sum(one.nbytes for one in saved)),
            shlex.quote(kept.session),
            ",".join(nodes),
            shlex.quote(kept.session),
        )


def not_begun(pipeline: Pipeline, catalog: Any) -> None:
    """Clean up after a run that was refused before its first node: remove sessions that are empty."""
    for kept in _run_sessions(pipeline, catalog):
        try:
            _saved(kept)
        except EntrepotError as error:
            logger.warning("Entrepot: session '%s' stays until it ends by itself: %s", kept.session, error)


def watch_process(address: str | None, scope: str) -> None:
    """Register a dataset that belongs to this process only: its values are removed when the process exits."""
    with _lock:
        if not _watched:
            atexit.register(_process_ends, os.getpid())
        _watched.add((address, scope))


def _process_ends(pid: int) -> None:
    if os.getpid() != pid:
        return  # in a fork of that process
    for address, scope in list(_watched):
        _remove(Kept(address, scope, PROCESS_SESSION), address)


# --- where a continued run has to start


def nodes_to_run(pipeline: Pipeline, catalog: Any, stored: dict[str, EntrepotDataset]) -> list[str]:
    """Return the nodes that a run must start with to continue in the session of a failed one.

    A node is done if its outputs exist or are no longer needed. For outputs outside the store it is unknown which run
    wrote them, so such a node runs again unless this process saw it succeed.

    Args:
        pipeline: pipeline of the failed run.
        catalog: catalog of the run.
        stored: its datasets in the run's session, by name.
    """
    with _lock:
        done = set(_done)
    makers = {name: node for node in pipeline.nodes for name in node.outputs}
    there = {name for name, dataset in stored.items() if dataset.exists()}
    run: set[str] = set()  # names of nodes

    def is_made(name: str, maker: str) -> bool:
        readers = [node.name for node in pipeline.nodes if name in node.inputs]
        if name in stored:
            return name in there or (bool(readers) and run.isdisjoint(readers))
        return maker in done

    for node in reversed(pipeline.nodes):  # readers come before the makers of their inputs
        if (not node.outputs and node.name not in done) or not all(is_made(name, node.name) for name in node.outputs):
            run.add(node.name)
    for node in reversed(pipeline.nodes):
        if node.name in run:
            missing = [name for name in node.inputs if name in makers and not _lasts(name, catalog, stored, there)]
            run.update(makers[name].name for name in missing)
    below: set[str] = set()
    first: list[str] = []
    for node in pipeline.nodes:
        parents = {makers[name].name for name in node.inputs if name in makers}
        if parents & (run | below):
            below.add(node.name)
        elif node.name in run:
            first.append(node.name)
    return first


def _lasts(name: str, catalog: Any, stored: dict[str, EntrepotDataset], there: set[str]) -> bool:
    """Return whether another run can find a dataset that this one made."""
    if name in stored:
        return name in there
    return name in catalog and not getattr(catalog.get(name), "_EPHEMERAL", False)


# --- internal


def _saved(kept: Kept) -> list[parts.Listed]:
    """List what a run saved in its session; remove the session if it is empty."""
    store = scope_store(kept.address, kept.scope).session(kept.session)
    found = list(parts.listed(store))
    if not found:
        store.remove_session(kept.session)
    return found


class _Ending:
    """Removes a session once all datasets that may still be read from it have been collected."""

    def __init__(self, kept: Kept, datasets: dict[str, EntrepotDataset]) -> None:
        self._kept = kept
        self._pid = os.getpid()
        # Held rather than looked up when needed: a dataset may be collected anywhere, even while a lock is held.
        self._store = scope_store(kept.address, kept.scope)
        self._left = {id(dataset) for dataset in datasets.values()}
        for dataset in datasets.values():
            weakref.finalize(dataset, self._gone, id(dataset))

    def _gone(self, which: int) -> None:
        self._left.discard(which)
        if self._left or os.getpid() != self._pid:
            return
        with suppress(EntrepotError):  # otherwise its TTL ends it, or `entrepot gc`, which recognizes its mark
            if not self._store.closed:
                self._store.remove_session(self._kept.session)
            else:
                _remove(self._kept, self._store.address)


def _remove(kept: Kept, address: str | None) -> None:
    """Remove a session over a connection of its own; do nothing if no store answers."""
    import entrepot
    from entrepot import garbage

    with suppress(EntrepotError):
        if garbage.store_answers(address):
            with entrepot.connect(address, scope=kept.scope, session="") as store, suppress(ObjectNotFound):
                store.remove_session(kept.session)


def _run_sessions(pipeline: Pipeline, catalog: Any) -> dict[Kept, dict[str, EntrepotDataset]]:
    """Return the sessions that belong to this run only, each with its datasets."""
    if "entrepot_kedro.dataset" not in sys.modules:
        return {}
    from entrepot_kedro.runs import stored

    found: dict[Kept, dict[str, EntrepotDataset]] = {}
    for name, dataset in stored(catalog, pipeline, pipeline).items():
        session = dataset.session
        if session.name != PROCESS_SESSION and (session.ends_with_run or is_run_session(session.name)):
            found.setdefault(Kept(dataset.address, dataset.scope, session.name), {})[name] = dataset
    return found


def _mark(kept: Kept) -> None:
    """Leave a mark for ``entrepot gc``, in case this process is killed before it removes the session."""
    store = scope_store(kept.address, kept.scope).session(kept.session)
    oid = ObjectID.derive(kept.scope, kept.session, ENDED_KEY)
    parts.put_record(store, oid, json.dumps(process_mark()).encode())
