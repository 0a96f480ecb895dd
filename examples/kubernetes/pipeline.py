"""The pipeline, stage by stage: its pods are created, injected, placed by the scheduler, and run to completion."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.locations import ClusterLocations, read_cluster_locations
from entrepot_operator.placement import explain

from examples.kubernetes.work import output_name

Manifest = dict[str, Any]
PUBLISH_TIMEOUT_SECONDS = 60.0
RUN_TIMEOUT_SECONDS = 120.0
CPU_REQUEST = "500m"
_ORDER_SEED = 1


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
        return sum(count for input_name, count in self.bytes.items() if self.homes[input_name] == self.node)


def build_stages(shards: int, rows: int) -> list[list[Task]]:
    """The pipeline's stages; the last one gets its arguments later.

    Args:
        shards: number of branches.
        rows: of the first one; each further one is larger.
    """

    def new_task(stage: str, shard: int, *reads: str, more: tuple[str, ...] = ()) -> Task:
        return Task(f"{stage}-{shard}", stage, [stage, str(shard), *more], list(reads))

    numbers = range(shards)
    stages = [
        [new_task("load", number, more=(str(rows * (2 + number) // 2),)) for number in numbers],
        [new_task("clean", number, output_name("raw", number)) for number in numbers],
        [new_task("train", number, output_name("clean", number)) for number in numbers],
    ]
    generator = random.Random(_ORDER_SEED)
    for stage in stages[1:]:
        generator.shuffle(stage)  # tasks of a stage become ready in any order; here reproducibly
    return stages


def manifest(task: Task) -> Manifest:
    """The pod as its author writes it."""
    container = {
        "name": "main",
        "image": "pipeline:1",
        "command": ["python", "-m", "examples.kubernetes.work", *task.words],
        "resources": {"requests": {"cpu": CPU_REQUEST, "memory": "256Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": task.name, "labels": {"stage": task.stage}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def run_stage(control_plane: Any, kubelet: Any, stores: str, namespace: str, stage: list[Task]) -> list[str]:
    """Run one stage; returns one line for each pod on what was done to it.

    Args:
        control_plane: the control plane.
        kubelet: runs the pods that the scheduler has placed.
        stores: the namespace in which the stores publish.
        namespace: of the pods.
        stage: its tasks; their results (node, inputs, answer) are filled in.
    """
    lines = []
    locations = _wait_for_names(control_plane, stores, {input_name for task in stage for input_name in task.reads})
    for task in stage:
        ids = {input_name: str(locations.find_by_name(input_name)) for input_name in task.reads}
        for input_name, oid in ids.items():
            ((task.homes[input_name], task.bytes[input_name]),) = locations.objects[oid].items()
        injection = explain(manifest(task), list(ids.values()), locations.objects, nodes=locations.nodes)
        control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", injection.pod)
        preferred_nodes = [f"{pull.value} ({pull.weight})" for pull in injection.pulls if pull.kind == "host"]
        lines.append(
            f"{task.name}: prefers {', '.join(preferred_nodes)}" if preferred_nodes else f"{task.name}: has no inputs"
        )
    kubelet.wait([task.name for task in stage], RUN_TIMEOUT_SECONDS)
    for task in stage:
        task.node = task.elsewhere = kubelet.runs[task.name].node
        task.answer = kubelet.log(task.name).strip().splitlines()[-1]
    return lines


def place_without_injection(control_plane: Any, stage: Iterable[Task]) -> None:
    """Let the scheduler place the same pods without injection; they are not run."""
    namespace = control_plane.namespace("without")
    pods = list(stage)
    for task in pods:
        control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest(task))
    node_by_pod = control_plane.bound(namespace, [task.name for task in pods])
    for task in pods:
        task.elsewhere = node_by_pod[task.name]
    control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    control_plane.wait(
        lambda: not control_plane.listed(f"/api/v1/namespaces/{namespace}/pods"), "the pods to be deleted"
    )


def _wait_for_names(control_plane: Any, stores: str, names: set[str]) -> ClusterLocations:
    """Wait until the cluster knows all of these names; returns the locations."""
    api = Api(find(str(control_plane.kubeconfig)))
    locations: list[ClusterLocations] = []

    def is_published() -> bool:
        locations[:] = [read_cluster_locations(api, stores)]
        return names <= {
            name_of_object for local_object in locations[0].local_objects for name_of_object in local_object.names
        }

    check: Callable[[], bool] = is_published
    try:
        control_plane.wait(check, f"the publishers to report {', '.join(sorted(names))}", PUBLISH_TIMEOUT_SECONDS)
    finally:
        api.close()
    return locations[0]
