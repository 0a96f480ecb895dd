"""Runs of this process: which are going on, under which IDs. Imports nothing of Entrepot and Kedro.

    begun --> going on --ended, or another one begins in its thread--> over

Kedro's run IDs are times in milliseconds, so runs that begin in several threads at once may have the same one. And
Kedro tells nobody that a run was interrupted (``KeyboardInterrupt``), after which a notebook goes on with the next.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RUN_ID = "run_id"
# Added by the hooks to the parameters of a run whose configuration is not in the project's own folder: Kedro leaves it
# out, but a run may not go on with the values of one that had another configuration.
CONF_SOURCE = "conf_source"


@dataclass(frozen=True)
class ActiveRun:
    """A run that has begun.

    Attributes:
        params: its parameters, with an ID that no other run of this process has.
        thread: identifier of the thread that runs it.
        pipeline: its pipeline.
        catalog: reference to its catalog; the traceback of an interrupted run keeps that for a while.
    """

    params: Mapping[str, Any]
    thread: int
    pipeline: Any
    catalog: weakref.ref[Any]


_lock = threading.Lock()
_runs: dict[int, ActiveRun] = {}  # by the id() of their catalogs; guarded by _lock


def begin(run_params: Mapping[str, Any], pipeline: Any, catalog: Any) -> tuple[dict[str, Any], list[ActiveRun]]:
    """Begin a run.

    Args:
        run_params: its parameters, as Kedro passes them to hooks.
        pipeline: its pipeline.
        catalog: its catalog.

    Returns:
        its parameters with an ID of its own, and the runs of this thread that were interrupted.
    """
    thread = threading.get_ident()
    params = dict(run_params)
    with _lock:
        interrupted = [number for number, run in _runs.items() if run.thread == thread]
        ended = [_runs.pop(number) for number in interrupted]
        if (run_id := params.get(RUN_ID)) is not None:
            taken = {run.params.get(RUN_ID) for run in _runs.values()}
            attempt = 1
            while params[RUN_ID] in taken:
                attempt += 1
                params[RUN_ID] = f"{run_id}-{attempt}"
        _runs[id(catalog)] = ActiveRun(params, thread, pipeline, weakref.ref(catalog))
    return params, ended


def end(run_params: Mapping[str, Any], catalog: Any) -> dict[str, Any]:
    """End a run; return its parameters, as :func:`begin` has."""
    with _lock:
        run = _runs.pop(id(catalog), None)
    return dict(run_params if run is None else run.params)
