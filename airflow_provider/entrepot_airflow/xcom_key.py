"""The names by which Airflow identifies an XCom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class XComKey:
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
