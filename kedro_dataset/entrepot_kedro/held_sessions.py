"""Sessions that a run has open from its beginning to its end, so that they are in use while its nodes compute.

    run begun --hold--> open --run ended, or its process exited--> closed: its TTL runs, `kedro entrepot gc` may take it

No dataset has its session open for longer than a load or a save takes. So without this, a TTL that is shorter than a
node would remove the values of a running run, and so would ``kedro entrepot gc``.

Only the process of ``kedro run`` has them open. Workers do not: those of Kedro's ParallelRunner outlive a killed
parent, and would keep its session from the run that is to continue in it. (A forked one inherits the ``Store``, but is
another client, which has no session open until it uses one.)
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from entrepot_io.connections import unshared_store
from entrepot_io.sessions import SCOPE_SESSION

from entrepot_kedro.log import logger
from entrepot_kedro.stored_datasets import one_per_session, stored_datasets

if TYPE_CHECKING:
    from entrepot import Store
    from kedro.pipeline import Pipeline

_lock = threading.Lock()
_held: dict[str, list[Store]] = {}  # by run ID; guarded by _lock


def hold(run_id: str, pipeline: Pipeline, catalog: Any) -> None:
    """Open the sessions of a run that begins, now that it is known which they are; those that are missing are created.

    Logs a warning if a store cannot be reached: the run may get by without it, or the store be back in time.

    Args:
        run_id: ID of the run.
        pipeline: pipeline of the run.
        catalog: catalog of the run.
    """
    opened: list[Store] = []
    for dataset in one_per_session(stored_datasets(catalog, pipeline, pipeline)):
        if dataset.session.name == SCOPE_SESSION:  # never expires
            continue
        try:
            # Without the durable tier: its driver may not be used in processes that are forked once it is loaded.
            opened.append(unshared_store(dataset.address, dataset.scope, dataset.session.name, durable=False))
        except EntrepotError as error:
            logger.warning(
                "Entrepot: cannot open session '%s' of this run; nodes that load from it or save to it will fail: %s",
                dataset.session.name,
                error,
            )
    with _lock:
        _held[run_id] = opened


def release(run_id: str) -> None:
    """Close the sessions of a run that has ended; do nothing for one that has none open."""
    with _lock:
        opened = _held.pop(run_id, [])
    for store in opened:
        store.close()
