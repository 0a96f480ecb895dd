"""Inputs of a task as its own process sees them: the XComs in its arguments, and what Airflow stores for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def xcom_references(operator: Any) -> Iterator[tuple[Any, str]]:
    """Yield the XComs in a task's arguments, as upstream operator and key."""
    from airflow.sdk import XComArg

    if operator.is_mapped:
        yield from XComArg.iter_xcom_references(operator.partial_kwargs)
        yield from operator._get_specified_expand_input().iter_references()
    else:
        yield from XComArg.iter_xcom_references(operator)
    group = operator.get_closest_mapped_task_group()
    if group is not None:
        yield from group._expand_input.iter_references()


def map_indexes(ti: Any, operator: Any, map_index: int, upstream: Any) -> Sequence[int]:
    """Return the instances of an upstream task that one instance of a task reads; ``[-1]``: it is not mapped."""
    group = upstream.get_closest_mapped_task_group()
    if not upstream.is_mapped and group is None:
        return [-1]
    if map_index >= 0 and group is not None and group is operator.get_closest_mapped_task_group():
        return [map_index]  # within a mapped group, an instance reads those of its own index
    return range(ti.get_ti_count(dag_id=ti.dag_id, task_ids=[upstream.task_id], run_ids=[ti.run_id]))


def fetch_xcom(ti: Any, task_id: str, map_index: int, key: str) -> Any:
    """Return what Airflow stores for an XCom of the same run; None: nothing."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetXCom

    comms: Any = task_runner.SUPERVISOR_COMMS
    request = GetXCom(
        key=key, dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=None if map_index < 0 else map_index
    )
    return getattr(comms.send(request), "value", None)
