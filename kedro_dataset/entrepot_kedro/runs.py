"""Description of a pipeline run: its nodes, which of its datasets are objects, and which node makes which.

The process of ``kedro run`` has it before the first node. Forked workers inherit it; other workers rebuild it from the
notes in their datasets and from the project's registry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any

from entrepot.ids import ObjectID
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.subject import Subject, Task
from kedro.framework import project
from kedro.io import CachedDataset, DatasetError
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from entrepot_kedro.dataset import EntrepotDataset
from entrepot_kedro.transcoding import plain_name

if TYPE_CHECKING:
    from entrepot_kedro.dataset import RunNote

HOST = "kedro"
DEFAULT_PIPELINE = "__default__"
_MAX_FRAMES = 40


@dataclass(frozen=True, eq=False)
class RunOf:
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
    datasets: dict[str, EntrepotDataset]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.pipeline.nodes}

    @cached_property
    def makers(self) -> dict[str, Node]:
        """Maps each dataset to the node that makes it."""
        return {plain_name(name): node for node in self.pipeline.nodes for name in node.outputs}

    @cached_property
    def readers(self) -> dict[str, int]:
        """Maps each dataset to the number of nodes that read it."""
        found: dict[str, int] = {}
        for node in self.pipeline.nodes:
            for name in set(map(plain_name, node.inputs)):
                found[name] = found.get(name, 0) + 1
        return found

    @cached_property
    def names(self) -> dict[ObjectID, str]:
        """Maps object IDs to dataset names."""
        return {dataset.reference().id: plain_name(name) for name, dataset in self.datasets.items()}

    def task(self, node: Node) -> Task:
        """Return a node's task, as rules and lineage identify it."""
        return Task(HOST, self.label, self.id, node.name)

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`~entrepot_io.policy.planning.Graph.maker`."""
        node = self.makers.get(self.names.get(ref.id, ""))
        return None if node is None else self.task(node)

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`~entrepot_io.policy.planning.Graph.inputs`; only outputs of nodes, since others cannot be lost."""
        node = self.nodes.get(task.name)
        if node is None:
            return None
        names = [name for name in dict.fromkeys(node.inputs) if name in self.datasets]
        return [self.datasets[name].reference() for name in names if plain_name(name) in self.makers]

    def subject(self, ref: ObjectRef, /) -> Subject | None:
        """Return what rules match on for an object whose lineage in the store is gone."""
        name = self.names.get(ref.id, "")
        node = self.makers.get(name)
        if node is None:
            return None
        return Subject(self.task(node), key=ref.key, dataset=name, tags=frozenset(node.tags))


def stored(catalog: Any, pipeline: Pipeline, executed: Pipeline) -> dict[str, EntrepotDataset]:
    """Return the datasets of a pipeline that are in the store, by their names in the catalog.

    Args:
        catalog: catalog of the run; datasets that match a pattern are created now, as the runner would do.
        pipeline: pipeline with the datasets.
        executed: the part of it whose datasets the runner creates anyway. Of the others, only those in the store are
            created: the packages of others may not even be installed here.
    """
    found: dict[str, EntrepotDataset] = {}
    sure = executed.datasets()
    for name in sorted(pipeline.datasets()):
        if name not in catalog or (name not in sure and not _is_stored(catalog, name)):
            continue
        dataset = catalog.get(name)
        if type(dataset) is CachedDataset:
            dataset = dataset._dataset
        if isinstance(dataset, EntrepotDataset):
            found[name] = dataset
    return found


def _is_stored(catalog: Any, name: str) -> bool:
    try:
        kind = catalog.get_type(name)
    except DatasetError:
        return False  # its class cannot be imported
    module, _, qualified = (kind or "").rpartition(".")
    found = getattr(sys.modules.get(module), qualified, None)
    return isinstance(found, type) and issubclass(found, EntrepotDataset)


def label_of(names: Iterable[str] | None) -> str:
    """Return one name for the pipelines of a run."""
    return "+".join(sorted(names or ())) or DEFAULT_PIPELINE


def registered(names: Iterable[str] | None) -> Pipeline:
    """Return the complete pipelines of a run, as registered by the project; empty outside of a project."""
    found = Pipeline([])
    for name in names or (DEFAULT_PIPELINE,):
        if name in project.pipelines:
            found += project.pipelines[name]
    return found


def of_note(note: RunNote, catalog: Any) -> RunOf:
    """Rebuild the run description in a worker that was not forked and so inherited nothing.

    Args:
        note: what a dataset knows about its run.
        catalog: catalog of the run.
    """
    if project.PACKAGE_NAME is None and note.package is not None:
        # Configure the pipelines only, not the whole project: Kedro configures logging in a worker whose project is
        # known, which fails the second time.
        project.pipelines.configure(f"{note.package}.pipeline_registry")
    pipeline = registered(note.pipelines)
    return RunOf(note.run, label_of(note.pipelines), pipeline, catalog, stored(catalog, pipeline, Pipeline([])))


def catalog_of_caller(frame: FrameType | None) -> Any:
    """Find the catalog of the ``Task`` that loads a dataset; the hook called before that gets only the node.

    Args:
        frame: frame to start the search from.
    """
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        catalog = frame.f_locals.get("catalog")
        if isinstance(frame.f_locals.get("node"), Node) and hasattr(catalog, "release"):
            return catalog
        frame = frame.f_back
    return None
