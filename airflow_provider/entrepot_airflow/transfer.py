"""Transfer between XComs and the store: the complete logic, whichever method Airflow calls it from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from entrepot_io.connections import permit_pickle, session_store
from entrepot_io.handoff import delete_value, get_value, put_value
from entrepot_io.keys import airflow_key
from entrepot_io.plain import stays_inline
from entrepot_io.reference import Reference
from entrepot_io.sessions import run_session
from entrepot_io.settings import Settings

from entrepot_airflow import advising, doubles
from entrepot_airflow.configuration import default_scope, policy_path, settings
from entrepot_airflow.pickling import naming_the_option, pickle_rule


@dataclass(frozen=True)
class Coordinate:
    """Identifies an XCom. Airflow supplies everything but the map index; direct callers of the class may omit it all.

    Attributes:
        dag_id, task_id, run_id: the task that pushes it.
        map_index: index of the mapped instance; ``None`` or -1: not mapped.
        key: the XCom's key.
    """

    dag_id: str | None
    task_id: str | None
    run_id: str | None
    map_index: int | None
    key: str | None


def outgoing(value: Any, coordinate: Coordinate) -> Any:
    """Return what Airflow stores for ``value``: a reference as a JSON object, or a small plain value itself."""
    now = _settings()
    if stays_inline(value, now.inline_below):
        doubles.note(coordinate.key, value, None)
        return value
    # Bypasses the policy: a task does not read what it writes.
    whole = doubles.shared(value, lambda kept: get_value(Reference.parse(kept), address=now.address, copy="never"))
    kept = _stored(whole, coordinate, now)
    doubles.note(coordinate.key, value, kept)
    return kept


def _stored(value: Any, coordinate: Coordinate, now: Settings) -> dict[str, Any]:
    scope = now.scope or default_scope()
    at = coordinate
    if at.dag_id is None or at.task_id is None or at.run_id is None or at.key is None:
        # Not from a task, so there is nothing to derive an ID from: use a random one, in a session that expires.
        store = session_store(now.address, scope, run_session("airflow", "detached"), now.session_ttl)
        with naming_the_option():
            return put_value(store, None, value).to_dict()
    session = run_session("airflow", at.dag_id, at.run_id)
    key = airflow_key(at.dag_id, at.task_id, at.map_index, at.key)

    def put() -> Reference:
        # Connects here, so that each retry by a policy uses a connection of its own.
        with naming_the_option():
            return put_value(session_store(now.address, scope, session, now.session_ttl), key, value)

    if policy_path():
        from entrepot_airflow.recovery import write

        return write(coordinate, put, lambda: session_store(now.address, scope, session, now.session_ttl))
    return put().to_dict()


def incoming(entry: object) -> Any:
    """Return the value of a stored reference."""
    now = _settings()
    if now.copy == "never":
        advising.got()
    reference = Reference.parse(entry)

    def get() -> Any:
        with naming_the_option():
            return get_value(reference, address=now.address, copy=now.copy)

    if policy_path():
        from entrepot_airflow.recovery import read

        return read(reference, get, now.copy)
    return get()


def _settings() -> Settings:
    """Return the settings, after putting the rule for pickled values into effect."""
    permit_pickle(*pickle_rule())
    return settings()


def discard(entry: object) -> bool:
    """Delete the object of a stored reference; return whether it existed."""
    return delete_value(Reference.parse(entry), address=settings().address)
