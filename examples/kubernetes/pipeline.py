"""The pipeline, stage by stage: its pods are created, injected, placed by the scheduler, and run to completion."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from entrepot_io.cluster.access import find
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.places import ClusterPlaces, read_cluster
from entrepot_io.placement import explain

from examples.kubernetes.work import name

Manifest = dict[str, Any]
PUBLISHED_SECONDS = 60.0
RUN_SECONDS = 120.0
CPU = "500m"
_ORDER = 1


@dataclass
class Task:
    """One pod of the pipeline.

    Attributes:
        name: the pod's.
        stage: what it does.
        reads: names of its inputs.
        node: where it ran.
        bytes: of its inputs, by object.
        homes: the node of each input.
        answer: the last line it printed.
        elsewhere: where the scheduler puts the same pod without injection; for pods without inputs, where it ran.
    """

    name: str
    stage: str
    words: list[str]
    reads: list[str] = field(default_factory=list[str])
    node: str = ""
    bytes: dict[str, int] = field(default_factory=dict[str, int])
    homes: dict[str, str] = field(default_factory=dict[str, str])
    answer: str = ""
    elsewhere: str = ""

    @property
    def shard(self) -> str:
        """The branch of the pipeline it belongs to."""
        return self.words[1]

    @property
    def all_bytes(self) -> int:
        """Total size of its inputs."""
        return sum(self.bytes.values())

    @property
    def local_bytes(self) -> int:
        """Size of the inputs that were on its own node."""
        return sum(count for one, count in self.bytes.items() if self.homes[one] == self.node)


def tasks(shards: int, rows: int) -> list[list[Task]]:
    """The pipeline's stages; the last one gets its arguments later.

    Args:
        shards: number of branches.
        rows: of the first one; each further one is larger.
    """

    def one(stage: str, shard: int, *reads: str, more: tuple[str, ...] = ()) -> Task:
        return Task(f"{stage}-{shard}", stage, [stage, str(shard), *more], list(reads))

    numbers = range(shards)
    stages = [
        [one("load", each, more=(str(rows * (2 + each) // 2),)) for each in numbers],
        [one("clean", each, name("raw", each)) for each in numbers],
        [one("train", each, name("clean", each)) for each in numbers],
    ]
    chance = random.Random(_ORDER)
    for stage in stages[1:]:
        chance.shuffle(stage)  # tasks of a stage become ready in any order; here reproducibly
    return stages


def manifest(task: Task) -> Manifest:
    """The pod as its author writes it."""
    container = {
        "name": "main",
        "image": "pipeline:1",
        "command": ["python", "-m", "examples.kubernetes.work", *task.words],
        "resources": {"requests": {"cpu": CPU, "memory": "256Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": task.name, "labels": {"stage": task.stage}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def run_stage(plane: Any, kubelet: Any, stores: str, namespace: str, stage: list[Task]) -> list[str]:
    """Run one stage; returns one line for each pod on what was done to it.

    Args:
        plane: the control plane.
        kubelet: runs the pods that the scheduler has placed.
        stores: the namespace in which the stores publish.
        namespace: of the pods.
        stage: its tasks; their results (node, inputs, answer) are filled in.
    """
    said = []
    places = _published(plane, stores, {one for task in stage for one in task.reads})
    for task in stage:
        ids = {one: str(places.named(one)) for one in task.reads}
        for one, oid in ids.items():
            ((task.homes[one], task.bytes[one]),) = places.objects[oid].items()
        done = explain(manifest(task), list(ids.values()), places.objects, nodes=places.nodes)
        plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", done.pod)
        drawn = [f"{pull.value} ({pull.weight})" for pull in done.pulls if pull.kind == "host"]
        said.append(f"{task.name}: drawn to {', '.join(drawn)}" if drawn else f"{task.name}: reads nothing")
    kubelet.wait([task.name for task in stage], RUN_SECONDS)
    for task in stage:
        task.node = task.elsewhere = kubelet.ran[task.name].node
        task.answer = kubelet.log(task.name).strip().splitlines()[-1]
    return said


def place_without(plane: Any, stage: Iterable[Task]) -> None:
    """Let the scheduler place the same pods without injection; they are not run."""
    namespace = plane.namespace("without")
    chosen = list(stage)
    for task in chosen:
        plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest(task))
    placed = plane.bound(namespace, [task.name for task in chosen])
    for task in chosen:
        task.elsewhere = placed[task.name]
    plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    plane.wait(lambda: not plane.listed(f"/api/v1/namespaces/{namespace}/pods"), "the pods to go")


def _published(plane: Any, stores: str, names: set[str]) -> ClusterPlaces:
    """Wait until the cluster knows all of these names; returns the locations."""
    api = Api(find(str(plane.kubeconfig)))
    found: list[ClusterPlaces] = []

    def known() -> bool:
        found[:] = [read_cluster(api, stores)]
        return names <= {each for one in found[0].locals for each in one.names}

    check: Callable[[], bool] = known
    try:
        plane.wait(check, f"the publishers to tell of {', '.join(sorted(names))}", PUBLISHED_SECONDS)
    finally:
        api.close()
    return found[0]
