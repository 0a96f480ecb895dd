"""Pods scheduled near their tasks' data: those that Airflow's executor creates, and overrides by DAG authors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError
from entrepot_io.keys import UNMAPPED
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import Reference
from entrepot_io.sessions import kedro_session_in_airflow
from entrepot_operator.placement import placement_hints
from entrepot_operator.placement.pod_placement import PodPlacer, get_pod_placer, summarize

from entrepot_airflow.configuration import option

if TYPE_CHECKING:
    from entrepot.ids import ObjectID
    from entrepot_operator.placement.pod_annotations import Locality, StoreRequirement
    from kubernetes.client import V1Pod

log = plain_logger(__name__)
_EXECUTOR_LABEL = "kubernetes_executor"  # label of pods that run a task instance


def mutate(pod: Any) -> None:
    """Modify a pod that is about to be created, for Airflow's ``pod_mutation_hook``.

    A pod of the Kubernetes executor is scheduled near the current inputs of its task instance, according to the
    database. Any other pod is modified only if its annotations ask for it.

    Raises:
        InvalidArgument: a placement annotation or an option is malformed; the task fails with this message.
    """
    pod_placer = get_pod_placer(option)
    if pod_placer is None:
        return
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    if labels.get(_EXECUTOR_LABEL) == "True" and annotations.get("run_id"):
        dag_id, run_id = annotations["dag_id"], annotations["run_id"]
        index = int(annotations.get("map_index", UNMAPPED))
        references = _input_references(
            dag_id, annotations["task_id"], run_id, index, placement_hints.parse_reads(annotations)
        )
        place_pod(pod, pod_placer, references, dag_id, run_id)
    elif placement_hints.has_placement_annotations(annotations):
        injection = pod_placer.place(pod)
        if injection is not None:
            pod.metadata, pod.spec = injection.pod.metadata, injection.pod.spec


def place_pod(pod: Any, pod_placer: PodPlacer, references: Iterable[Reference], dag_id: str, run_id: str) -> None:
    """Schedule a pod near its inputs; the given pod is modified.

    Args:
        pod: the pod about to be created.
        pod_placer: decides the placement.
        references: references to its inputs.
        dag_id, run_id: the run that it belongs to.

    Raises:
        InvalidArgument: a placement annotation is malformed.
    """
    keyed_objects = placement_hints.parse_keyed_objects(placement_hints.pod_annotations_of(pod))
    ids = [] if keyed_objects is None else keyed_objects.ids(kedro_session_in_airflow(dag_id, run_id))
    injection = pod_placer.place(pod, references, ids)
    if injection is None:
        return
    pod.metadata, pod.spec = injection.pod.metadata, injection.pod.spec
    log.info("Entrepot: pod %s %s", pod.metadata.name, summarize(injection))


def _input_references(
    dag_id: str, task_id: str, run_id: str, map_index: int, reads: tuple[str, ...] | None
) -> list[Reference]:
    from sqlalchemy.exc import SQLAlchemyError

    from entrepot_airflow.pods.upstream import input_references

    try:
        return input_references(dag_id, task_id, run_id, map_index, reads)
    except (SQLAlchemyError, EntrepotError) as error:
        log.warning("Entrepot: cannot determine the inputs of task %s in DAG %s: %s", task_id, dag_id, error)
        return []


def pod_override(
    pod: V1Pod | None = None,
    *,
    reads: Iterable[str] | None = None,
    requires: Iterable[str | bytes | ObjectID] | None = None,
    locality: Locality | None = None,
    store: StoreRequirement | None = None,
    mounts: bool | None = None,
    containers: Iterable[str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> V1Pod:
    """Return a ``pod_override`` for a task's ``executor_config``, with what its author knows about placement.

    It names no nodes: those are determined when each attempt's pod is created.

    Args:
        pod: pod to start from, which is not modified; default: a new one.
        reads: tasks whose XComs it reads, ``"load"`` or ``"load[3]"`` (a mapped instance); default: its direct
            upstream tasks. ``[]``: it reads nothing.
        requires: IDs of further objects that it reads.
        locality: ``"preferred"`` (default), ``"required"``: only nodes that hold all of the data; or ``"off"``.
        store: whether to require nodes with a store: ``"preferred"`` (default), ``"required"`` or ``"off"``.
        mounts: whether to add socket, shared memory and environment to the pod; default: True.
        containers: the containers to add them to; default: all. The task's own is called ``base``.
        annotations: further annotations, such as those of ``entrepot_kedro.node_annotations``.

    Raises:
        InvalidArgument: an argument is out of range.
    """
    from kubernetes.client import V1ObjectMeta, V1Pod

    merged = {
        **(annotations or {}),
        **placement_hints.build_annotations(
            reads=reads,
            requires=requires,
            locality=locality,
            store=store,
            mounts=mounts,
            containers=containers,
        ),
    }
    if pod is None:
        return V1Pod(metadata=V1ObjectMeta(annotations=merged))
    import copy

    changed = copy.deepcopy(pod)
    changed.metadata = changed.metadata or V1ObjectMeta()
    changed.metadata.annotations = {**(changed.metadata.annotations or {}), **merged}
    return changed
