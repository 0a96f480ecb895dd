"""Transfer between XComs and the store: the complete logic, whichever method Airflow calls it from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot_io.connections import permit_pickle, session_store
from entrepot_io.inline_policy import stays_inline
from entrepot_io.keys import airflow_key
from entrepot_io.reference import Reference
from entrepot_io.sessions import run_session
from entrepot_io.settings import Settings
from entrepot_io.type_info import type_name
from entrepot_io.values import delete_value, get_value, put_value

from entrepot_airflow.configuration import current_settings, default_scope, policy_path
from entrepot_airflow.values import multiple_outputs, read_only_advice
from entrepot_airflow.values.pickle_rules import explain_pickle_errors, pickle_rule
from entrepot_airflow.values.value_options import ValueOptions, split, without_options
from entrepot_airflow.xcom_key import XComKey

if TYPE_CHECKING:
    from entrepot import Store

KEPT = "airflow-kept"  # first part of the names of sessions with values that have a time to live of their own
_NO_LIMIT = sys.maxsize


def store_xcom(value: Any, xcom_key: XComKey) -> Any:
    """Return what Airflow stores for ``value``: a reference as a JSON object, or a small plain value itself.

    Args:
        value: as the task pushed it, perhaps with options.
        xcom_key: what it is stored under.

    Raises:
        InvalidArgument: it is to stay in Airflow's database, and is not plain JSON.
    """
    settings = settings_of_values()
    plain, options = split(value)
    limit = settings.inline_below if options.inline is None else _NO_LIMIT if options.inline else 0
    if stays_inline(plain, limit):
        multiple_outputs.record_push(xcom_key.key, value, None)
        return plain
    if options.inline:
        raise InvalidArgument(
            f"the XCom {xcom_key.key!r} is to stay in Airflow's database (inline=True), but a {type_name(plain)} is "
            "not plain JSON: leave the option out"
        )
    # Bypasses the policy: a task does not read what it writes.
    deduplicated = multiple_outputs.deduplicate(
        plain, lambda entry: get_value(Reference.parse(entry), address=settings.address, copy="never")
    )
    entry = _store_value(without_options(deduplicated), xcom_key, settings, options)
    multiple_outputs.record_push(xcom_key.key, value, entry)
    return entry


def _store_value(value: Any, xcom_key: XComKey, settings: Settings, options: ValueOptions) -> dict[str, Any]:
    scope = settings.scope or default_scope()
    ttl = settings.session_ttl if options.ttl is None else options.ttl
    if xcom_key.dag_id is None or xcom_key.task_id is None or xcom_key.run_id is None or xcom_key.key is None:
        # Not from a task, so there is nothing to derive an ID from: use a random one, in a session that expires.
        session, key = run_session("airflow", "detached"), None
    else:
        run = (xcom_key.dag_id, xcom_key.run_id)
        # A session that is not the run's is not removed with the run.
        session = run_session("airflow", *run) if options.ttl is None else run_session(KEPT, *run, f"{options.ttl:g}s")
        key = airflow_key(xcom_key.dag_id, xcom_key.task_id, xcom_key.map_index, xcom_key.key)

    def opened() -> Store:
        return session_store(settings.address, scope, session, ttl)

    def put() -> Reference:
        # Connects here, so that each retry by a policy uses a connection of its own.
        store = opened()
        with explain_pickle_errors():
            reference = put_value(store, key, value, usage_hints=options.locality_set)
        if options.name is not None:
            store.set_name(options.name, reference.id, replace=True)
        if options.durable:
            store.make_durable(reference.id)
        return reference

    if key is not None and policy_path():
        from entrepot_airflow.policy.recovery import write

        return write(xcom_key, put, opened)
    return put().to_dict()


def load_xcom(entry: object) -> Any:
    """Return the value of a stored reference."""
    settings = settings_of_values()
    if settings.copy == "never":
        read_only_advice.record_read_only_value()
    reference = Reference.parse(entry)

    def get() -> Any:
        with explain_pickle_errors():
            return get_value(reference, address=settings.address, copy=settings.copy)

    if policy_path():
        from entrepot_airflow.policy.recovery import read

        return read(reference, get, settings.copy)
    return get()


def settings_of_values() -> Settings:
    """Return the settings, after putting the rule for pickled values into effect."""
    permit_pickle(*pickle_rule())
    return current_settings()


def delete_xcom(entry: object) -> bool:
    """Delete the object of a stored reference; return whether it existed."""
    return delete_value(Reference.parse(entry), address=current_settings().address)
