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
from entrepot_io.connections import check_durable_folder, move_durable_tier, unshared_store
from entrepot_io.sessions import SCOPE_SESSION

from entrepot_kedro.stored_datasets import one_per_session, stored_datasets

if TYPE_CHECKING:
    from entrepot import Store
    from kedro.pipeline import Pipeline

_lock = threading.Lock()
_held: dict[str, list[Store]] = {}  # by run ID; guarded by _lock


def hold(run_id: str, pipeline: Pipeline, catalog: Any) -> None:
    """Open the sessions of a run that begins, now that it is known which they are; those that are missing are created.

    Args:
        run_id: ID of the run.
        pipeline: pipeline of the run.
        catalog: catalog of the run.

    Raises:
        StoreUnavailable: a store was reached by :func:`check_stores`, and cannot be reached any more.
    """
    datasets = stored_datasets(catalog, pipeline, pipeline)
    instances: dict[tuple[str | None, str], str] = {}
    opened: list[Store] = []
    try:
        for dataset in one_per_session(datasets):
            name = dataset.session.name
            if name != SCOPE_SESSION:  # that one never expires
                # Without the durable tier: its driver may not be used in processes that are forked once it is loaded.
                store = unshared_store(dataset.address, dataset.scope, name, durable=False)
                opened.append(store)
                move_durable_tier(store)
                instances[dataset.address, name] = store.instance_id
    except EntrepotError:
        _close(opened)
        raise
    for dataset in datasets.values():
        dataset.begin_run(instances.get((dataset.address, dataset.session.name)))
    with _lock:
        _held[run_id] = opened


def check_stores(pipeline: Pipeline, catalog: Any) -> None:
    """Check that the stores of a run that begins can be reached, and the folder where its values are also written be
    written, rather than let its first node compute in vain.

    Args:
        pipeline: pipeline of the run.
        catalog: catalog of the run.

    Raises:
        StoreUnavailable: nothing answers at an address.
        InvalidArgument: ``ENTREPOT_DURABLE`` is a folder that cannot be written.
    """
    datasets = stored_datasets(catalog, pipeline, pipeline)
    by_store = {(dataset.address, dataset.scope): dataset for dataset in datasets.values()}
    for address, scope in by_store:
        unshared_store(address, scope, SCOPE_SESSION, durable=False).close()
    if by_store:
        check_durable_folder()


def release(run_id: str) -> None:
    """Close the sessions of a run that has ended; do nothing for one that has none open."""
    with _lock:
        opened = _held.pop(run_id, [])
    _close(opened)


def _close(opened: list[Store]) -> None:
    for store in opened:
        store.close()
