"""``python -m benchmarks placement``: time to inject a pod that reads many objects.

The pod has three containers and its own node affinity with two terms; each object is on two nodes of the cluster.
Rounds of all kinds are interleaved.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.figures import median, quantile
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

GOAL_SECONDS = 0.005  # for 1,000 objects
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def add_placement(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``placement``."""
    parser = commands.add_parser("placement", help="injecting a pod that reads many objects")
    parser.add_argument("--objects", type=int, nargs="+", default=[10, 100, 1000], help="default 10 100 1000")
    parser.add_argument("--nodes", type=int, default=100, help="of the cluster (default 100)")
    parser.add_argument("--rounds", type=int, default=200, help="default 200")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    figures: list[dict[str, Any]] = []
    for objects in arguments.objects:
        kinds = _kinds(objects, arguments.nodes)
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        cpu: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(arguments.rounds):
            for name, inject in kinds.items():
                begin, cpu_begin = time.perf_counter(), time.thread_time()
                inject()
                seconds[name].append(time.perf_counter() - begin)
                cpu[name].append(time.thread_time() - cpu_begin)
        for name, taken in seconds.items():
            row = {"objects": objects, "kind": name, "median": median(taken), "p99": quantile(sorted(taken), 0.99)}
            figures.append({**row, "cpu": median(cpu[name])})
    rows = [
        [
            f"{figure['objects']}, {figure['kind']}",
            time_text(figure["median"]),
            time_text(figure["p99"]),
            time_text(figure["cpu"]),
        ]
        for figure in figures
    ]
    print(grid(["objects, pod", "median", "p99", "CPU"], rows))
    thousand = [figure["median"] for figure in figures if figure["objects"] == 1000]
    if thousand:
        verdict = "reached" if max(thousand) <= GOAL_SECONDS else "missed"
        print(f"\n1000 objects in {time_text(GOAL_SECONDS)}: {verdict} (slowest median {time_text(max(thousand))})")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "rows": figures}, indent=1))
    return 0


def _kinds(objects: int, count: int) -> dict[str, Callable[[], object]]:
    from entrepot_operator.placement import Node, inject

    chance = random.Random(7)
    names = [f"node-{place}" for place in range(count)]
    ids = [chance.randbytes(20).hex() for _ in range(objects)]
    places = {oid: {name: chance.randrange(1 << 30) for name in chance.sample(names, 2)} for oid in ids}
    nodes = {name: Node({HOST: name, ZONE: f"zone-{place % 3}"}) for place, name in enumerate(names)}
    pod = _pod()
    required = copy.deepcopy(pod)
    required["metadata"]["annotations"] = {"entrepot.dev/locality": "required"}
    again = inject(pod, ids, places, nodes=nodes)
    kinds: dict[str, Callable[[], object]] = {
        "dictionary": lambda: inject(pod, ids, places),
        "dictionary, nodes known": lambda: inject(pod, ids, places, nodes=nodes),
        "dictionary, required": lambda: inject(required, ids, places, nodes=nodes),
        "injected before": lambda: inject(again, ids, places, nodes=nodes),
    }
    try:
        from kubernetes import client
    except ImportError:
        return kinds
    model: Any = client.V1Pod(
        metadata=client.V1ObjectMeta(name="train"),
        spec=client.V1PodSpec(containers=[client.V1Container(name=name, image="x") for name in "abc"]),
    )
    kinds["V1Pod, nodes known"] = lambda: inject(model, ids, places, nodes=nodes)
    return kinds


def _pod() -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [f"node-{number}"]}]} for number in range(2)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    containers = [{"name": name, "image": "x", "env": [{"name": "A", "value": "1"}]} for name in "abc"]
    return {
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": containers, "affinity": {"nodeAffinity": required}},
    }
