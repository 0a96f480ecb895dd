"""Detection of deployments that share a scope, and so share their assets with equal keys.

Everyone who sets the same scope shares it. That may be intended; but the name may also have been copied by mistake, and
then two deployments overwrite each other's assets. So each deployment records itself in the scope before it writes
anything there, and warns if it is not alone. Nor can one tell in a shared scope whether a run that it does not know was
deleted, or is another's.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dagster import DagsterInstance
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot_io.values import get_by_key, put_value

from entrepot_dagster.values.keys import deployment_identity

if TYPE_CHECKING:
    from entrepot import Store

log = logging.getLogger("dagster.entrepot")
DEPLOYMENTS_KEY = "deployments"
_lock = threading.Lock()
_registered: set[tuple[str, str, str]] = set()  # (store address, scope, deployment); guarded by _lock


def register_deployment(instance: DagsterInstance | None, store: Store) -> None:
    """Record this deployment in the scope, and warn about others; once per process.

    Args:
        instance: instance of the deployment; ephemeral ones are ignored.
        store: the scope's own session.
    """
    identity = deployment_identity(instance)
    if identity is None:
        return
    own_id, folder = identity
    registration = (str(store.address), store.scope, own_id)
    with _lock:
        if registration in _registered:
            return
        _registered.add(registration)
    try:
        deployments = _deployments(store)
    except EntrepotError as error:  # the write that follows will report it
        log.debug("Entrepot: cannot list the deployments in the scope %r: %s", store.scope, error)
        return
    if others := _others(deployments, own_id):
        log.warning(
            "Entrepot: the scope %r is shared with the deployment at %s: assets with the same key are one object, and "
            "each deployment overwrites the other's. If this is not intended, give each its own scope (the argument "
            "scope, or ENTREPOT_SCOPE).",
            store.scope,
            " and at ".join(others),
        )
    if own_id not in deployments:
        put_value(store, DEPLOYMENTS_KEY, deployments | {own_id: folder})


def other_deployments(instance: DagsterInstance, store: Store) -> list[str]:
    """Return the directories of the other deployments that have written to a scope.

    Args:
        instance: instance of this deployment.
        store: the scope's own session.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    identity = deployment_identity(instance)
    return _others(_deployments(store), "" if identity is None else identity[0])


def _deployments(store: Store) -> dict[str, str]:
    try:
        return dict(get_by_key(store, DEPLOYMENTS_KEY))
    except ObjectNotFound:
        return {}


def _others(deployments: dict[str, str], own_id: str) -> list[str]:
    return sorted(directory for identity, directory in deployments.items() if identity != own_id)
