"""Settings of the deployment: ``ENTREPOT_*``, then ``[entrepot]`` of Airflow's configuration, then defaults."""

from __future__ import annotations

import os
from functools import lru_cache

from entrepot.errors import InvalidArgument
from entrepot_io.scopes import folder_scope
from entrepot_io.settings import Settings, reserve_setting, resolve, switch

POLICY_VARIABLE = "ENTREPOT_POLICY"
_AIRFLOW_POLICY_VARIABLE = "AIRFLOW__ENTREPOT__POLICY"


def option(name: str) -> str | None:
    """Return an option of the section ``[entrepot]``; None: it is not set."""
    from airflow.sdk.configuration import conf

    value = conf.get("entrepot", name, fallback=None)
    return None if value is None else str(value)


def current_settings() -> Settings:
    """Return the settings for passing values."""
    return resolve(lookup_option=option)


def allocates() -> bool:
    """Return whether tasks' large values may be made in the store; an invalid setting is reported by the task."""
    try:
        return switch("allocate", os.environ.get("ENTREPOT_ALLOCATE") or option("allocate") or None)
    except InvalidArgument:
        return True


def reserves() -> bool:
    """Return whether tasks may reserve memory in the store; an invalid setting is reported by the task."""
    try:
        return reserve_setting(os.environ.get("ENTREPOT_RESERVE") or option("reserve") or None) is not None
    except InvalidArgument:
        return True


def default_scope() -> str:
    """Return the scope of this Airflow installation, derived from its home directory."""
    return folder_scope("airflow", os.path.expandvars(os.environ.get("AIRFLOW_HOME") or "~/airflow"))


def policy_path() -> str:
    """Return the policy's path; empty: no policy, and none of its code is loaded. Cheap: called for every value."""
    path = os.environ.get(POLICY_VARIABLE)
    return _configured_policy(os.environ.get(_AIRFLOW_POLICY_VARIABLE)) if path is None else path


@lru_cache(maxsize=1)
def _configured_policy(environment_value: str | None) -> str:
    return environment_value or option("policy") or ""


def pod_placement_enabled() -> bool:
    """Return whether pods are scheduled near their data; if not, none of that code is loaded."""
    return bool(os.environ.get("ENTREPOT_LOCATIONS") or option("locations"))
