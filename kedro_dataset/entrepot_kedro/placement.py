"""Pod annotations with the objects that a task's nodes read, for the orchestrator or manifest that creates its pod.

A dataset's ID follows from its name and session, so what a task will read is known without a run. Datasets of the run's
own session are given by key: the orchestrator that creates the pod supplies the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot_io.keys import kedro_key
from entrepot_operator.placement import placement_hints
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from entrepot_kedro.stored_datasets import stored_datasets

if TYPE_CHECKING:
    from entrepot_operator.placement.pod_annotations import Locality, StoreRequirement


def node_annotations(
    nodes: Pipeline | Iterable[Node],
    catalog: Any,
    *,
    session: str | None = None,
    locality: Locality | None = None,
    store: StoreRequirement | None = None,
) -> dict[str, str]:
    """Return annotations for the pod of a task that runs these nodes.

    Args:
        nodes: the nodes that run in one pod; what they pass to each other does not count.
        catalog: catalog of the project. Versioned datasets are ignored: only the store knows which version is read.
        session: session of the run; default: that of the DAG run, if Airflow creates the pod. Elsewhere it is required,
            and the nodes must get the same value as ``ENTREPOT_SESSION``.
        locality: ``"preferred"`` (default), ``"required"``: only nodes that hold all of the data; or ``"off"``.
        store: whether to require nodes with a store: ``"preferred"`` (default), ``"required"`` or ``"off"``.

    Raises:
        InvalidArgument: datasets of the run have different scopes.
    """
    pipeline = nodes if isinstance(nodes, Pipeline) else Pipeline(list(nodes))
    input_names = pipeline.inputs()
    object_ids: list[str] = []
    keys: dict[str, str] = {}  # key -> scope
    for name, dataset in stored_datasets(catalog, pipeline, Pipeline([])).items():
        if name not in input_names or dataset.is_versioned:
            continue
        if dataset.session.ends_with_run:
            keys[kedro_key(dataset.name)] = dataset.scope
        else:
            object_ids.append(str(dataset.reference().id))
    scopes = sorted(set(keys.values()))
    if len(scopes) > 1:
        raise InvalidArgument(
            f"the nodes read datasets of the scopes {', '.join(scopes)}, but a pod's annotations can name only one: "
            "give the datasets the same scope, or set a session for those of other scopes"
        )
    return placement_hints.build_annotations(
        requires=object_ids or None,
        keys=list(keys) or None,
        scope=scopes[0] if scopes else None,
        session=session,
        locality=locality,
        store=store,
    )
