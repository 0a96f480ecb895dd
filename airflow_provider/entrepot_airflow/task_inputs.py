"""Inputs of a task as its own process sees them: the XComs in its arguments, and the instances that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from entrepot_airflow.compat.mapping import expanded_references, group_references


def xcom_references(operator: Any) -> Iterator[tuple[Any, str]]:
    """Yield the XComs in a task's arguments, as upstream operator and key."""
    from airflow.sdk import XComArg

    if operator.is_mapped:
        yield from XComArg.iter_xcom_references(operator.partial_kwargs)
        yield from expanded_references(operator)
    else:
        yield from XComArg.iter_xcom_references(operator)
    group = operator.get_closest_mapped_task_group()
    if group is not None:
        yield from group_references(group)


def map_indexes(ti: Any, operator: Any, map_index: int, upstream: Any) -> Sequence[int]:
    """Return the instances of an upstream task that one instance of a task reads; ``[-1]``: it is not mapped."""
    group = upstream.get_closest_mapped_task_group()
    if not upstream.is_mapped and group is None:
        return [-1]
    if map_index >= 0 and group is not None and group is operator.get_closest_mapped_task_group():
        return [map_index]  # within a mapped group, an instance reads those of its own index
    return range(ti.get_ti_count(dag_id=ti.dag_id, task_ids=[upstream.task_id], run_ids=[ti.run_id]))
