"""The access to a session's objects that its declaration asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from entrepot._client.session import Session
from entrepot._store.objects import DirectObjects, ObjectAccess, to_item
from entrepot.durable import DECLARATION_KEY, Durable, durable_config
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._checkpoints.backend import DurableBackend


def access_to(
    session: Session, requested: Durable | Literal[False] | None, inherited: Durable | None = None
) -> ObjectAccess:
    """Return the access to the objects of a newly opened session, as it is declared or is now to be declared.

    Args:
        session: the session.
        requested: a declaration to record for all processes; False: not durable here; None: as it was declared.
        inherited: the declaration to record if there is none and none is requested.
    """
    direct = DirectObjects(session)
    if requested is False:
        return direct
    recorded = durable_config(session.client, session.scope, session.name) if requested is None else None
    durable = requested or recorded or inherited
    if durable == inherited:  # the same place: with the storage options, which no record has
        durable = inherited
    if durable is None:
        return direct
    from entrepot._checkpoints.functions import checkpoint_function  # here, because most sessions are not durable
    from entrepot._store.durable_objects import DurableObjects

    backend: DurableBackend = checkpoint_function("tier")(durable)
    if recorded is None and durable_config(session.client, session.scope, session.name) != durable:
        if requested is not None:  # what is inherited was checked when it was declared
            backend.check()  # all later processes would fail, too
        _declare(direct, session, durable)
    return DurableObjects(direct, durable, backend)


def redeclare(session: Session, requested: Durable | None) -> None:
    """Record a durable session's new place, for all processes that open it from now on; its driver is not loaded.

    Args:
        session: the session; if it is not durable, it stays so.
        requested: the new declaration; None: none.
    """
    recorded = durable_config(session.client, session.scope, session.name)
    if requested is not None and recorded is not None and recorded.url != requested.url:
        _declare(DirectObjects(session), session, replace(requested, match=recorded.match))


def _declare(direct: DirectObjects, session: Session, durable: Durable) -> None:
    oid = ObjectID.derive(session.scope, session.name, DECLARATION_KEY)
    direct.put_item(None, to_item(session, durable.to_bytes(), oid, False, DECLARATION_KEY, True))
