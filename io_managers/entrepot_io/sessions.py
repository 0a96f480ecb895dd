"""Sessions: one per pipeline run, with a time to live; values that outlive runs are in the scope's own session.

An orchestrator may forget a run without notice, so a run's session always expires: some time after its last use (24
hours unless configured). The scope's own session, whose name is empty, never expires.
"""

from __future__ import annotations

import math
import re

from entrepot._daemon.settings import MAX_TTL_SECONDS
from entrepot.errors import InvalidArgument

from entrepot_io.keys import join, shorten

SCOPE_SESSION = ""
DEFAULT_TTL_SECONDS = 24 * 3600.0
MAX_SESSION_BYTES = 240

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TTL = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|)")


def run_session(orchestrator: str, *run: str) -> str:
    """The name of the session of one run.

    Args:
        orchestrator: ``"airflow"``, ``"dagster"`` or ``"kedro"``.
        run: identifies the run within its deployment, such as a DAG and a run ID.

    >>> run_session("airflow", "etl", "manual__2026-01-01")
    'airflow/etl/manual__2026-01-01'

    Raises:
        InvalidArgument: a part is not a string.
    """
    return shorten(join([orchestrator, *run]), MAX_SESSION_BYTES)


def kedro_session_in_airflow(dag_id: str, run_id: str) -> str:
    """The session of Kedro datasets whose nodes are tasks of one DAG run.

    >>> kedro_session_in_airflow("etl", "manual__1")
    'kedro/airflow/etl/manual__1'
    """
    return run_session("kedro", "airflow", dag_id, run_id)


def is_kedro_session_in_airflow(session: str) -> bool:
    """Whether a session's name is one of :func:`kedro_session_in_airflow`.

    >>> is_kedro_session_in_airflow("kedro/airflow/etl/manual__1"), is_kedro_session_in_airflow("kedro/2026")
    (True, False)
    """
    return session.startswith("kedro/airflow/")


def parse_ttl(value: float | str | None) -> float:
    """Seconds that a session lives after its last use.

    Args:
        value: seconds, or a string such as ``"90"``, ``"30min"``, ``"24h"`` or ``"7d"``; ``None`` for the default of 24
            h.

    Raises:
        InvalidArgument: it cannot be parsed, is less than one second (nothing would live long enough to be read), is
            more than the store can have (2**32 seconds), or is not finite: runs that never expire would fill the store.
    """
    if value is None:
        return DEFAULT_TTL_SECONDS
    if isinstance(value, str):
        match = _TTL.fullmatch(value.strip().lower())
        if match is None:
            raise InvalidArgument(
                "a session's time to live must be a number of seconds or a string such as '30min', '24h' or '7d', "
                f"not {value!r}"
            )
        seconds = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise InvalidArgument(f"a session's time to live must be a number of seconds, not {value!r}")
    if not math.isfinite(seconds) or seconds < 1:
        raise InvalidArgument(f"a session's time to live must be finite and at least one second, not {value!r}")
    if seconds > MAX_TTL_SECONDS:
        raise InvalidArgument(f"a session's time to live must be at most {MAX_TTL_SECONDS} seconds, not {value!r}")
    return seconds
