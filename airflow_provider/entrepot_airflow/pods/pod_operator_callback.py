"""Placement for KubernetesPodOperator, whose pod is created in the task's process with access to its XComs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.providers.cncf.kubernetes.callbacks import KubernetesPodOperatorCallback
from airflow.sdk.exceptions import AirflowRuntimeError
from entrepot.errors import EntrepotError
from entrepot_io.keys import UNMAPPED
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import Reference, is_reference
from entrepot_operator.placement import placement_hints
from entrepot_operator.placement.pod_placement import get_pod_placer
from entrepot_operator.placement.sources import REFERENCES

from entrepot_airflow.compat.task_process import read_xcom
from entrepot_airflow.configuration import option
from entrepot_airflow.pods.pod_placement import place_pod
from entrepot_airflow.pods.upstream import parse_instance
from entrepot_airflow.task_inputs import map_indexes, xcom_references

log = plain_logger(__name__)
RETURN_VALUE_KEY = "return_value"


class DataLocalityCallback(KubernetesPodOperatorCallback):
    """For ``KubernetesPodOperator(callbacks=...)``: schedules the pod near its inputs and connects it to the store.

    If no source of locations is configured, the hosts named in the references are used.
    """

    @staticmethod
    def on_pod_manifest_created(*, pod_request: Any, context: Any, **_: Any) -> None:
        """Modify the manifest each time a pod is about to be created.

        Raises:
            InvalidArgument: a placement annotation or an option is malformed.
        """
        pod_placer = get_pod_placer(option, default=REFERENCES)
        ti, reads = context["ti"], placement_hints.parse_reads(placement_hints.pod_annotations_of(pod_request))
        input_references: list[Reference] = []
        for task_id, index, key in dict.fromkeys(
            _declared_xcoms(ti, reads) if reads is not None else _argument_xcoms(ti)
        ):
            try:
                stored = read_xcom(ti, task_id, index, key)
                if is_reference(stored):
                    input_references.append(Reference.parse(stored))
            except (EntrepotError, AirflowRuntimeError) as error:
                log.warning("Entrepot: cannot look up XComs of task %s with key %r: %s", task_id, key, error)
        if pod_placer is not None:
            place_pod(pod_request, pod_placer, input_references, ti.dag_id, ti.run_id)


def _argument_xcoms(ti: Any) -> Iterator[tuple[str, int, str]]:
    """Yield the XComs in the task's arguments, and its direct upstream tasks' results, which templates pull by name."""
    tasks = ti.task.dag.task_dict
    operator = tasks[ti.task_id]
    index = UNMAPPED if ti.map_index is None else ti.map_index
    xcoms = [
        *xcom_references(operator),
        *((tasks[item], RETURN_VALUE_KEY) for item in sorted(operator.upstream_task_ids)),
    ]
    for upstream, key in xcoms:
        for item in map_indexes(ti, operator, index, upstream):
            yield upstream.task_id, item, key


def _declared_xcoms(ti: Any, reads: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    tasks = ti.task.dag.task_dict
    operator = tasks[ti.task_id]
    for name in reads:
        task_id, index = parse_instance(name)
        if index is not None:
            yield task_id, index, RETURN_VALUE_KEY
        elif task_id in tasks:
            for map_index in map_indexes(ti, operator, UNMAPPED, tasks[task_id]):
                yield task_id, map_index, RETURN_VALUE_KEY
        else:
            log.warning("Entrepot: the pod's annotations name task %r, which is not in the DAG", task_id)
