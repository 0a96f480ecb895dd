"""Nodes of a run that are finished, so that a run which continues it need not repeat them.

    computed --each of its outputs saved--> finished
       `--a generator, which saves its outputs in parts--> not known: it is repeated

Kedro's ParallelRunner tells only the hooks of the worker process about a node. So a worker notes it in a file of the
run's session, in the folder of the journal of runs, where the process of the run looks when the run has failed.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import threading
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrepot_policy.state.events import log_file

from entrepot_kedro.log import logger
from entrepot_kedro.run_files import FINISHED, file_name, run_folder
from entrepot_kedro.stored_datasets import stored_dataset
from entrepot_kedro.values.sessions import is_run_session

if TYPE_CHECKING:
    from kedro.pipeline.node import Node

_lock = threading.Lock()
_unsaved: dict[
    str, tuple[set[str], Path | None]
] = {}  # by node: outputs to be saved, file to note it; guarded by _lock
_finished: set[str] = set()  # nodes that this process has finished; guarded by _lock


def begin_run() -> None:
    """Forget the nodes of earlier runs of this process."""
    with _lock:
        _unsaved.clear()
        _finished.clear()


def node_computed(node: Node, catalog: Any, outputs: Mapping[str, Any]) -> None:
    """Note that a node's function has returned.

    Args:
        node: the node.
        catalog: catalog of the run.
        outputs: what it has returned, by dataset.
    """
    if any(inspect.isgenerator(value) for value in outputs.values()):
        return
    file = None if multiprocessing.parent_process() is None else _file_of_node(node, catalog)
    with _lock:
        _unsaved[node.name] = (set(node.outputs), file)
    if not node.outputs:
        _finish(node.name)


def output_saved(node: Node, dataset: str) -> None:
    """Note that an output of a node is saved; the last one finishes it."""
    with _lock:
        unsaved, _ = _unsaved.get(node.name, (set[str](), None))
        if dataset not in unsaved:
            return
        unsaved.remove(dataset)
        if unsaved:
            return
    _finish(node.name)


def finished_nodes(scope: str, session: str) -> set[str]:
    """Return the nodes that this process and its workers have finished.

    Args:
        scope: of the run.
        session: of its values.
    """
    with _lock:
        finished = set(_finished)
    return finished | _read(_file(scope, session))


def forget(scope: str, session: str, nodes: Container[str]) -> None:
    """Forget nodes that an earlier run in a session has finished, as a run that begins there repeats them."""
    file = _file(scope, session)
    noted = _read(file)
    if noted and (kept := [name for name in noted if name not in nodes]) != list(noted):
        remove(scope, session)
        for name in kept:
            _note(file, name)


def remove(scope: str, session: str) -> None:
    """Remove what was noted of the runs in a session."""
    with suppress(OSError):  # it is pruned with the journal
        _file(scope, session).unlink(missing_ok=True)


def _finish(name: str) -> None:
    with _lock:
        _, file = _unsaved.pop(name)
        _finished.add(name)
    if file is not None:
        _note(file, name)


def _file_of_node(node: Node, catalog: Any) -> Path | None:
    """Return the file of the session that a node's values are in; None: none of them is in the store."""
    for name in [*node.inputs, *node.outputs]:
        dataset = stored_dataset(catalog, name) if name in catalog else None
        if dataset is None or dataset.session.is_of_process:
            continue
        if dataset.session.ends_with_run or is_run_session(dataset.session.name):
            return _file(dataset.scope, dataset.session.name)
    return None


def _file(scope: str, session: str) -> Path:
    return run_folder(log_file(scope)) / file_name(session, FINISHED)


def _note(file: Path, name: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(name).encode() + b"\n")  # appended as a whole
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning("Entrepot: cannot note in %s that a node is done; a resumed run repeats it: %s", file, error)


def _read(file: Path) -> set[str]:
    names: set[str] = set()
    with suppress(OSError):
        for line in file.read_bytes().splitlines():
            with suppress(ValueError):  # cut off, as the disk was full
                names.add(str(json.loads(line)))
    return names
