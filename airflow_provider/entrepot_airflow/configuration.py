"""Settings of the deployment: ``ENTREPOT_*``, then ``[entrepot]`` of Airflow's configuration, then defaults."""

from __future__ import annotations

import os
from functools import lru_cache

from entrepot.errors import InvalidArgument
from entrepot_io.scopes import folder_scope
from entrepot_io.settings import Settings, optional_switch, reserve_setting, resolve

POLICY_VARIABLE = "ENTREPOT_POLICY"


def option(name: str, section: str = "entrepot") -> str | None:
    """Return an option of Airflow's configuration; None: it is not set. Cheap: called for every value.

    Airflow reads its files once for each process, but takes a tenth of a millisecond for each look-up in them. So it is
    asked once, and again if the option's variable has changed, as by a DAG's file.
    """
    return _configured(section, name, os.environ.get(f"AIRFLOW__{section.upper()}__{name.upper()}"))


@lru_cache(maxsize=64)
def _configured(section: str, name: str, environment_value: str | None) -> str | None:
    """What Airflow's configuration says, while the option's variable has this value."""
    from airflow.sdk.configuration import conf

    value = conf.get(section, name, fallback=None)
    return None if value is None else str(value)


def current_settings() -> Settings:
    """Return the settings for passing values."""
    return resolve(lookup_option=option)


def allocates() -> bool:
    """Return whether tasks' large values may be made in the store: as set, else if XComs go through it.

    An invalid setting is reported by the task.
    """
    try:
        allocate = optional_switch("allocate", os.environ.get("ENTREPOT_ALLOCATE") or option("allocate") or None)
        return passes_xcoms() if allocate is None else allocate
    except InvalidArgument:
        return True


def passes_xcoms() -> bool:
    """Return whether ``[core] xcom_backend`` is Entrepot's, or derived from it in a module of this package."""
    return (option("xcom_backend", "core") or "").startswith("entrepot_airflow.")


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
    return option("policy") or "" if path is None else path


def pod_placement_enabled() -> bool:
    """Return whether pods are scheduled near their data; if not, none of that code is loaded."""
    return bool(os.environ.get("ENTREPOT_LOCATIONS") or option("locations"))
