"""Transfer between XComs and the store: the complete logic, whichever method Airflow calls it from."""

from __future__ import annotations

from typing import Any

from entrepot_io.connections import permit_pickle, session_store
from entrepot_io.inline_policy import stays_inline
from entrepot_io.keys import airflow_key
from entrepot_io.reference import Reference
from entrepot_io.sessions import run_session
from entrepot_io.settings import Settings
from entrepot_io.values import delete_value, get_value, put_value

from entrepot_airflow.configuration import current_settings, default_scope, policy_path
from entrepot_airflow.values import multiple_outputs, read_only_advice
from entrepot_airflow.values.pickle_rules import explain_pickle_errors, pickle_rule
from entrepot_airflow.xcom_key import XComKey


def store_xcom(value: Any, xcom_key: XComKey) -> Any:
    """Return what Airflow stores for ``value``: a reference as a JSON object, or a small plain value itself."""
    settings = _settings_with_pickle_rule()
    if stays_inline(value, settings.inline_below):
        multiple_outputs.record_push(xcom_key.key, value, None)
        return value
    # Bypasses the policy: a task does not read what it writes.
    deduplicated = multiple_outputs.deduplicate(
        value, lambda entry: get_value(Reference.parse(entry), address=settings.address, copy="never")
    )
    entry = _store_value(deduplicated, xcom_key, settings)
    multiple_outputs.record_push(xcom_key.key, value, entry)
    return entry


def _store_value(value: Any, xcom_key: XComKey, settings: Settings) -> dict[str, Any]:
    scope = settings.scope or default_scope()
    if xcom_key.dag_id is None or xcom_key.task_id is None or xcom_key.run_id is None or xcom_key.key is None:
        # Not from a task, so there is nothing to derive an ID from: use a random one, in a session that expires.
        store = session_store(settings.address, scope, run_session("airflow", "detached"), settings.session_ttl)
        with explain_pickle_errors():
            return put_value(store, None, value).to_dict()
    session = run_session("airflow", xcom_key.dag_id, xcom_key.run_id)
    key = airflow_key(xcom_key.dag_id, xcom_key.task_id, xcom_key.map_index, xcom_key.key)

    def put() -> Reference:
        # Connects here, so that each retry by a policy uses a connection of its own.
        with explain_pickle_errors():
            return put_value(session_store(settings.address, scope, session, settings.session_ttl), key, value)

    if policy_path():
        from entrepot_airflow.policy.recovery import write

        return write(xcom_key, put, lambda: session_store(settings.address, scope, session, settings.session_ttl))
    return put().to_dict()


def load_xcom(entry: object) -> Any:
    """Return the value of a stored reference."""
    settings = _settings_with_pickle_rule()
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


def _settings_with_pickle_rule() -> Settings:
    """Return the settings, after putting the rule for pickled values into effect."""
    permit_pickle(*pickle_rule())
    return current_settings()


def delete_xcom(entry: object) -> bool:
    """Delete the object of a stored reference; return whether it existed."""
    return delete_value(Reference.parse(entry), address=current_settings().address)
