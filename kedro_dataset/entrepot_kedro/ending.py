"""What is left of a run in the store when it is over: nothing, but for what a catalog entry keeps and for failed runs.

    a run --ended well--> its session is removed, as soon as nothing in this process holds one of its datasets
           |               (``session.run()`` returns the outputs), at the latest when the process ends
           +-- failed before anything was saved --> its session is removed
           +-- failed --> its session stays until its time to live has passed; the log says how to go on, how to drop it
           +-- killed --> the same, without a log line

What a catalog entry keeps (``session: ""``, ``versioned: true``, a session by name) is in other sessions.
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
_done: set[str] = set()  # nodes of this process's run that ended well; guarded by _lock
_watched: set[tuple[str | None, str]] = set()  # stores and scopes with values of this process; guarded by _lock


@dataclass(frozen=True)
class Kept:
    """A session of a store."""

    address: str | None
    scope: str
    session: str


# --- what the hooks tell


def begun() -> None:
    """A run begins in this process."""
    with _lock:
        _done.clear()


def node_ended(name: str) -> None:
    """A node ended well in this process; those of worker processes are not known here."""
    with _lock:
        _done.add(name)


def ended_well(pipeline: Pipeline, catalog: Any) -> None:
    """A run ended well: its session goes with the last of its datasets."""
    for kept, datasets in _run_sessions(pipeline, catalog).items():
        try:
            _mark(kept)
        except EntrepotError as error:
            logger.warning("Entrepot: values of this run stay until session '%s' ends: %s", kept.session, error)
            continue
        _Ending(kept, datasets)


def failed(pipeline: Pipeline, catalog: Any) -> None:
    """A run failed: say what is kept for the one that goes on, and how to drop it."""
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
    """A run was refused before its first node: what looking for its inputs opened is ended where nothing is in it."""
    for kept in _run_sessions(pipeline, catalog):
        try:
            _saved(kept)
        except EntrepotError as error:
            logger.warning("Entrepot: session '%s' stays until it ends by itself: %s", kept.session, error)


def watch_process(address: str | None, scope: str) -> None:
    """A dataset of this process alone was made: what it saves is removed when the process ends."""
    with _lock:
        if not _watched:
            atexit.register(_process_ends, os.getpid())
        _watched.add((address, scope))


def _process_ends(pid: int) -> None:
    if os.getpid() != pid:
        return  # a fork of that process
    for address, scope in list(_watched):
        _remove(Kept(address, scope, PROCESS_SESSION), address)


# --- which nodes a run that goes on has to begin with


def nodes_to_run(pipeline: Pipeline, catalog: Any, stored: dict[str, EntrepotDataset]) -> list[str]:
    """The nodes that a run has to begin with which goes on in the session of a failed one.

    A node has ended if what it makes is there, or if nobody needs that any more. Of what lies elsewhere than in the
    store it is not known which run wrote it, so such a node runs again unless this process saw it end.

    Args:
        pipeline: of the failed run.
        catalog: of the run.
        stored: its datasets that are in the run's session, by their names.
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

    for node in reversed(pipeline.nodes):  # readers come before what makes their inputs
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
    """Whether another run finds a dataset that this one made."""
    if name in stored:
        return name in there
    return name in catalog and not getattr(catalog.get(name), "_EPHEMERAL", False)


# --- within


def _saved(kept: Kept) -> list[parts.Listed]:
    """What a run saved in its session, which is removed where that is nothing."""
    store = scope_store(kept.address, kept.scope).session(kept.session)
    found = list(parts.listed(store))
    if not found:
        store.remove_session(kept.session)
    return found


class _Ending:
    """A session that goes when all datasets are gone that may still be read from it."""

    def __init__(self, kept: Kept, datasets: dict[str, EntrepotDataset]) -> None:
        self._kept = kept
        self._pid = os.getpid()
        # Held, and not looked for when it is needed: a dataset may be collected anywhere, also in a lock's block.
        self._store = scope_store(kept.address, kept.scope)
        self._left = {id(dataset) for dataset in datasets.values()}
        for dataset in datasets.values():
            weakref.finalize(dataset, self._gone, id(dataset))

    def _gone(self, which: int) -> None:
        self._left.discard(which)
        if self._left or os.getpid() != self._pid:
            return
        with suppress(EntrepotError):  # its time to live ends it, and `entrepot gc` knows it by its mark
            if not self._store.closed:
                self._store.remove_session(self._kept.session)
            else:
                _remove(self._kept, self._store.address)


def _remove(kept: Kept, address: str | None) -> None:
    """Remove a session by a connection of its own; nothing if no store answers."""
    import entrepot
    from entrepot import garbage

    with suppress(EntrepotError):
        if garbage.store_answers(address):
            with entrepot.connect(address, scope=kept.scope, session="") as store, suppress(ObjectNotFound):
                store.remove_session(kept.session)


def _run_sessions(pipeline: Pipeline, catalog: Any) -> dict[Kept, dict[str, EntrepotDataset]]:
    """The sessions that belong to this run alone, with its datasets in them."""
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
    """Leave a mark for ``entrepot gc``, should this process be killed before it removes the session."""
    store = scope_store(kept.address, kept.scope).session(kept.session)
    oid = ObjectID.derive(kept.scope, kept.session, ENDED_KEY)
    parts.put_record(store, oid, json.dumps(process_mark()).encode())
