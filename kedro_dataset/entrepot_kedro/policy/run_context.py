"""Description of a pipeline run: its nodes, which of its datasets are objects, and which node makes which.

The process of ``kedro run`` has it before the first node. Forked workers inherit it; other workers rebuild it from
the ``run_info`` of their datasets and from the project's registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from entrepot.ids import ObjectID
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.state.lineage import ObjectRef
from kedro.framework import project
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from entrepot_kedro.compat.projects import configure_pipelines
from entrepot_kedro.stored_datasets import stored_datasets
from entrepot_kedro.values.stored_dataset import RunInfo, StoredDataset
from entrepot_kedro.values.transcoding import plain_name

ORCHESTRATOR = "kedro"
DEFAULT_PIPELINE = "__default__"


@dataclass(frozen=True, eq=False)
class RunContext:
    """The run that a process works for; the policy's graph when the store's lineage is gone.

    Attributes:
        id: ID of ``kedro run``'s session.
        label: names of the pipelines, for rules and logs.
        pipeline: all nodes that can be rerun, including those that this run leaves out.
        catalog: catalog of the run.
        datasets: the datasets in the store, by their names in the catalog.
    """

    id: str
    label: str
    pipeline: Pipeline
    catalog: Any
    datasets: dict[str, StoredDataset]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.pipeline.nodes}

    @cached_property
    def makers(self) -> dict[str, Node]:
        """Maps each dataset to the node that makes it."""
        return {plain_name(name): node for node in self.pipeline.nodes for name in node.outputs}

    @cached_property
    def reader_counts(self) -> dict[str, int]:
        """Maps each dataset to the number of nodes that read it."""
        counts: dict[str, int] = {}
        for node in self.pipeline.nodes:
            for name in set(map(plain_name, node.inputs)):
                counts[name] = counts.get(name, 0) + 1
        return counts

    @cached_property
    def dataset_names(self) -> dict[ObjectID, str]:
        """Maps object IDs to dataset names."""
        return {dataset.reference().id: plain_name(name) for name, dataset in self.datasets.items()}

    def task(self, node: Node) -> Task:
        """Return a node's task, as rules and lineage identify it."""
        return Task(ORCHESTRATOR, self.label, self.id, node.name)

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.maker`."""
        node = self.makers.get(self.dataset_names.get(ref.id, ""))
        return None if node is None else self.task(node)

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.inputs`; outputs of nodes only, others cannot be lost."""
        node = self.nodes.get(task.name)
        if node is None:
            return None
        names = [name for name in dict.fromkeys(node.inputs) if name in self.datasets]
        return [self.datasets[name].reference() for name in names if plain_name(name) in self.makers]

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules match on for an object whose lineage in the store is gone."""
        name = self.dataset_names.get(ref.id, "")
        node = self.makers.get(name)
        if node is None:
            return None
        return Subject(self.task(node), key=ref.key, dataset=name, tags=frozenset(node.tags))


def label_of(names: Iterable[str] | None) -> str:
    """Return one name for the pipelines of a run."""
    return "+".join(sorted(names or ())) or DEFAULT_PIPELINE


def registered_pipeline(names: Iterable[str] | None) -> Pipeline:
    """Return the complete pipelines of a run, as registered by the project; empty outside of a project."""
    pipeline = Pipeline([])
    for name in names or (DEFAULT_PIPELINE,):
        if name in project.pipelines:
            pipeline += project.pipelines[name]
    return pipeline


def rebuild_run_context(run_info: RunInfo, catalog: Any) -> RunContext:
    """Rebuild the run description in a worker that was not forked and so inherited nothing.

    Args:
        run_info: what a dataset knows about its run.
        catalog: catalog of the run.
    """
    if project.PACKAGE_NAME is None and run_info.package is not None:
        configure_pipelines(run_info.package)
    pipeline = registered_pipeline(run_info.pipelines)
    datasets = stored_datasets(catalog, pipeline, Pipeline([]))
    for name, dataset in datasets.items():
        dataset.join_run(run_info.run_id, name)
    return RunContext(
        run_info.run_id,
        label_of(run_info.pipelines),
        pipeline,
        catalog,
        datasets,
    )
