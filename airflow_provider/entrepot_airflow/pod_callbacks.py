"""Placement for KubernetesPodOperator, whose pod is created in the task's process with access to its XComs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from airflow.providers.cncf.kubernetes.callbacks import KubernetesPodOperatorCallback
from airflow.sdk.exceptions import AirflowRuntimeError
from entrepot.errors import EntrepotError
from entrepot_io.keys import UNMAPPED
from entrepot_io.placement import wishes
from entrepot_io.placement.hosted import placer
from entrepot_io.placement.sources import REFERENCES
from entrepot_io.reference import Reference, is_reference

from entrepot_airflow.configuration import option
from entrepot_airflow.graph import entry, map_indexes, references
from entrepot_airflow.pods import put
from entrepot_airflow.upstream import instance_named

log = logging.getLogger(__name__)
RETURNED = "return_value"


class FollowData(KubernetesPodOperatorCallback):
    """For ``KubernetesPodOperator(callbacks=...)``: schedules the pod near its inputs and connects it to the store.

    If no source of locations is configured, the hosts named in the references are used.
    """

    @staticmethod
    def on_pod_manifest_created(*, pod_request: Any, context: Any, **_: Any) -> None:
        """Modify the manifest each time a pod is about to be created.

        Raises:
            InvalidArgument: a placement annotation or an option is malformed.
        """
        by = placer(option, default=REFERENCES)
        ti, reads = context["ti"], wishes.reads(wishes.of_pod(pod_request))
        found: list[Reference] = []
        for task_id, index, key in dict.fromkeys(_named(ti, reads) if reads is not None else _read(ti)):
            try:
                kept = entry(ti, task_id, index, key)
                if is_reference(kept):
                    found.append(Reference.parse(kept))
            except (EntrepotError, AirflowRuntimeError) as error:
                log.warning("Entrepot: what %s left as %r cannot be known now: %s", task_id, key, error)
        if by is not None:
            put(pod_request, by, found, ti.dag_id, ti.run_id)


def _read(ti: Any) -> Iterator[tuple[str, int, str]]:
    """Yield the XComs in the task's arguments, and its direct upstream tasks' results, which templates pull by name."""
    tasks = ti.task.dag.task_dict
    operator = tasks[ti.task_id]
    index = UNMAPPED if ti.map_index is None else ti.map_index
    named = [*references(operator), *((tasks[one], RETURNED) for one in sorted(operator.upstream_task_ids))]
    for upstream, key in named:
        for one in map_indexes(ti, operator, index, upstream):
            yield upstream.task_id, one, key


def _named(ti: Any, reads: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    tasks = ti.task.dag.task_dict
    operator = tasks[ti.task_id]
    for name in reads:
        task_id, index = instance_named(name)
        if index is not None:
            yield task_id, index, RETURNED
        elif task_id in tasks:
            for one in map_indexes(ti, operator, UNMAPPED, tasks[task_id]):
                yield task_id, one, RETURNED
        else:
            log.warning("Entrepot: the DAG has no task %r, which the pod is said to read", task_id)
