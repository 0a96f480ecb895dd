"""Detection of deployments that share a scope, and so share their assets with equal keys.

Everyone who sets the same scope shares it. That may be intended; but the name may also have been copied by mistake, and
then two deployments overwrite each other's assets. So each deployment records itself in the scope, and warns if it is
not alone.
"""

from __future__ import annotations

import logging
import threading

from dagster import DagsterInstance
from entrepot import Store
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot_io.handoff import get_by_key, put_value

from entrepot_dagster.places import identity_of

log = logging.getLogger("dagster.entrepot")
KEY = "deployments"
_lock = threading.Lock()
_noticed: set[tuple[str, str, str]] = set()  # (store address, scope, deployment); guarded by _lock


def notice_others(instance: DagsterInstance | None, store: Store) -> None:
    """Record this deployment in the scope, and warn about others; once per process.

    Args:
        instance: instance of the deployment; ephemeral ones are ignored.
        store: the scope's own session.
    """
    identity = identity_of(instance)
    if identity is None:
        return
    mine, folder = identity
    known = (str(store.address), store.scope, mine)
    with _lock:
        if known in _noticed:
            return
        _noticed.add(known)
    try:
        found: dict[str, str] = dict(get_by_key(store, KEY))
    except ObjectNotFound:
        found = {}
    except EntrepotError as error:  # the write that follows will report it
        log.debug("Entrepot: who else is in the scope %r cannot be known: %s", store.scope, error)
        return
    others = sorted(where for identity, where in found.items() if identity != mine)
    if others:
        log.warning(
            "Entrepot: the scope %r is shared with the deployment at %s: assets with the same key are one object, and "
            "each deployment overwrites the other's. If that is not meant, give each a scope of its own (the argument "
            "scope, or ENTREPOT_SCOPE).",
            store.scope,
            " and at ".join(others),
        )
    if mine not in found:
        put_value(store, KEY, found | {mine: folder})
