"""Metrics and lineage of the values that a task writes and reads.

Both go where the deployment sends its own: StatsD or OpenTelemetry, and OpenLineage. A failure to report must not fail
the task, whose value was passed on all the same; it is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

from entrepot_io.filesystem.paths import encode
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import is_reference
from entrepot_io.table_info import table_info

from entrepot_airflow.compat import observation as airflow_observation

T = TypeVar("T")
log = plain_logger(__name__)
PREFIX = "entrepot.xcom"
MAX_COLUMNS = 500  # of a table, in a dataset of OpenLineage
SCHEME = "entrepot"


class _Source:
    """What collected lineage came from; Airflow wants an object that stays."""


_SOURCE = _Source()


def observed_write(value: Any, store: Callable[[], Any], plain: Callable[[Any], Any]) -> Any:
    """Store a value and report it.

    Args:
        value: as the task pushed it.
        store: stores it; returns what Airflow stores in its place.
        plain: returns the value without its options.
    """
    entry = _measured("write", store)
    if not is_reference(entry):
        _report(lambda: airflow_observation.count(f"{PREFIX}.inline"))
        return entry
    _report(lambda: airflow_observation.count(f"{PREFIX}.write_bytes", entry["nbytes"], tags=_tags(entry)))
    _report(lambda: _add_lineage(entry, plain(value), output=True))
    return entry


def observed_read(entry: Any, load: Callable[[], T]) -> T:
    """Read the value of a reference and report it.

    Args:
        entry: the reference, as Airflow stores it.
        load: reads it.
    """
    value = _measured("read", load)
    _report(lambda: airflow_observation.count(f"{PREFIX}.read_bytes", entry["nbytes"], tags=_tags(entry)))
    _report(lambda: _add_lineage(entry, value, output=False))
    return value


def _measured(operation: str, run: Callable[[], T]) -> T:
    start = time.perf_counter()
    try:
        result = run()
    except Exception as error:
        tags = {"operation": operation, "error": type(error).__name__}
        _report(lambda: airflow_observation.count(f"{PREFIX}.errors", tags=tags))
        raise
    seconds = time.perf_counter() - start
    _report(lambda: airflow_observation.time(f"{PREFIX}.{operation}", seconds))
    return result


def _report(send: Callable[[], None]) -> None:
    try:
        send()
    except Exception as error:  # of whatever metrics and lineage the deployment has
        log.warning("Entrepot: cannot report metrics or lineage of an XCom: %s: %s", type(error).__name__, error)


def _tags(entry: Any) -> dict[str, str]:
    parts = str(entry["session"]).split("/")
    return {"dag_id": unquote(parts[1])} if len(parts) > 1 else {}


def _add_lineage(entry: Any, value: Any, *, output: bool) -> None:
    collector = airflow_observation.lineage_collector()
    key = entry.get("key")
    if collector is None or key is None:
        return
    extra: dict[str, Any] = {"dataset": key, "bytes": entry["nbytes"], "type": entry["type"], "output": output}
    info = table_info(value)
    if info is not None:
        extra["columns"] = [[column.name, column.type] for column in info.columns[:MAX_COLUMNS]]
        if info.rows is not None:
            extra["rows"] = info.rows
    # As in assets.py: the run's session, and the object's name in it.
    uri = f"{SCHEME}://{encode(entry['scope'])}/{encode(entry['session'])}/{key}"
    add = collector.add_output_asset if output else collector.add_input_asset
    add(context=_SOURCE, scheme=SCHEME, uri=uri, asset_extra=extra)
