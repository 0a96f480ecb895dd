"""Why a value of a run is not in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.errors import ObjectLost, ObjectNotFound

if TYPE_CHECKING:
    from entrepot import Store


def lost_with_previous_store(store: Store, run_instance: str, name: str, error: ObjectNotFound) -> None:
    """Raise if the store is not the one in which the run began; a worker process may have seen only this one.

    Kedro loads a value only after it has been saved, so one that is missing was saved in the previous store.

    Args:
        store: the store that does not have the value.
        run_instance: the instance in which the run began.
        name: name of the dataset.
        error: what the load failed with.

    Raises:
        ObjectLost: this is another instance.
    """
    if store.instance_id != run_instance:
        raise ObjectLost(
            f"dataset {name!r} was lost with the previous store: the store at {store.address} ended or was killed "
            f"during this run, and this is a new one (instance {store.instance_id}; the run began in {run_instance}). "
            "Run the node that makes it again: kedro run --only-missing-outputs"
        ) from error
