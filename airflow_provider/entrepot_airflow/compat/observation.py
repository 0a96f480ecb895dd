"""Where a task's process reports what it did: Airflow's metrics, and its collector of lineage."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

try:
    from airflow.sdk.observability import stats

    _stats: Any = stats
except ImportError:  # before 3.3, whose metrics of tasks are not reached from here
    _stats = None


def count(name: str, number: int = 1, *, tags: Mapping[str, str] | None = None) -> None:
    """Add to a counter of Airflow's metrics; does nothing where they are off."""
    if _stats is not None:
        _stats.incr(name, number, tags=None if tags is None else dict(tags))


def time(name: str, seconds: float, *, tags: Mapping[str, str] | None = None) -> None:
    """Report a duration to Airflow's metrics; does nothing where they are off."""
    if _stats is not None:
        _stats.timing(name, timedelta(seconds=seconds), tags=None if tags is None else dict(tags))


def lineage_collector() -> Any:
    """Return Airflow's collector of lineage; None: nothing reads what it collects."""
    try:
        from airflow.sdk.plugins_manager import get_hook_lineage_readers_plugins
    except ImportError:  # before 3.3
        return None
    if not get_hook_lineage_readers_plugins():
        return None  # Airflow would create a collector that does nothing, but imports what each provider has for assets
    from airflow.sdk.lineage import get_hook_lineage_collector

    return get_hook_lineage_collector()
