"""Why a value that belongs to a run is not in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.errors import ObjectLost, ObjectNotFound

if TYPE_CHECKING:
    from entrepot import Store


def not_kept(name: str, session: str, error: ObjectNotFound) -> None:
    """Raise an error for a load outside of a run, as in a notebook.

    Args:
        name: name of the dataset.
        session: that of its value.
        error: what the load failed with.

    Raises:
        ObjectNotFound: always.
    """
    raise ObjectNotFound(
        f"dataset {name!r} is not in session {session!r}, which is where this catalog looks: values belong to the run "
        "that makes them, and are deleted when it succeeds. Take them from what session.run() returns, keep them "
        '(session: "" in the catalog entry), or, for those of a run that has failed, set ENTREPOT_SESSION to the '
        "session that its log names"
    ) from error


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
