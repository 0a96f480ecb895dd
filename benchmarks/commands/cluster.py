"""``python -m benchmarks cluster``: where a real scheduler puts injected pods, and how many stay pending.

The tests' control plane with fake nodes, objects in its API as written by publishers, and pods as created by
``inject``. Each case is placed twice: with and without injection. The bytes of the pods' inputs are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.cluster_cases import CASES, SLOTS, Case, Pod, make_case
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

KUBECP = ROOT / "tests" / "kubecp"
GOAL_LOCAL = 0.95
PLACED_SECONDS = 300.0
QUIET_SECONDS = 3.0


@dataclass
class Figures:
    """The results of one case.

    Attributes:
        case: its name.
        pods: number of pods.
        pending, default_pending: number of pods not placed: with and without injection.
        needed: total bytes of the pods' inputs.
        possible: bytes that would be local if each pod ran on its best node, ignoring capacity.
        local, default_local: bytes that are local: with and without injection.
        seconds: from the first pod's creation until the last was placed, with injection.
    """

    case: str
    pods: int
    pending: int
    default_pending: int
    needed: int
    possible: int
    local: int
    default_local: int
    seconds: float


def add_cluster(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``cluster``."""
    parser = commands.add_parser("cluster", help="where a real scheduler puts pods that follow their data")
    parser.add_argument("--nodes", type=int, default=20, help="default 20")
    parser.add_argument("--pods", type=int, default=500, help="default 500")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="default: all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table; exit code 1 if no control plane is available."""
    sys.path.insert(0, str(KUBECP))
    import kubecp_build
    from control_plane import create_control_plane
    from entrepot_operator import crds

    figures: list[Figures] = []
    try:
        plane = create_control_plane()
    except kubecp_build.NoControlPlane as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    with plane:
        plane.install(crds.definitions())
        for name in arguments.cases:
            case = make_case(name, arguments.nodes, arguments.pods, arguments.seed)
            figures.append(measure(plane, case))
            print(_case_line(figures[-1]), flush=True)
    print("\n" + table(figures))
    for line in verdicts(figures):
        print(line)
    if arguments.json:
        rows = [asdict(case_figures) for case_figures in figures]
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "rows": rows}, indent=1))
    return 0


def measure(plane: Any, case: Case) -> Figures:
    """Place the pods of a case with and without injection, on nodes of their own.

    Args:
        plane: a control plane with the CRDs, and without other schedulable nodes.
    """
    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import find
    from entrepot_operator.kubernetes.locations import read_cluster_locations
    from entrepot_operator.placement import inject

    labels = {name: {**node.labels, "entrepot.dev/store": "ready"} for name, node in case.nodes.items()}
    with plane.some_nodes(labels, pods=str(SLOTS), cpu="8", memory="32Gi"):
        for name, node in case.nodes.items():
            if node.taints:
                patch = {"spec": {"taints": node.taints}}
                plane.request("PATCH", f"/api/v1/nodes/{name}", patch, kind="application/merge-patch+json")
        stores = plane.namespace("stores")
        _publish(plane, stores, case)
        api = Api(find(str(plane.kubeconfig)))
        places = read_cluster_locations(api, stores)
        api.close()
        plain = [_manifest(pod) for pod in case.pods]
        without, _ = _place(plane, case, plain)
        drawn = [
            inject(manifest, pod.reads, places.objects, nodes=places.nodes)
            for manifest, pod in zip(plain, case.pods, strict=True)
        ]
        nodes, seconds = _place(plane, case, drawn)
    return Figures(
        case=case.name,
        pods=len(case.pods),
        pending=len(case.pods) - len(nodes),
        default_pending=len(case.pods) - len(without),
        needed=sum(case.sizes[oid] for pod in case.pods for oid in pod.reads),
        possible=sum(max(case.local(pod, node) for node in case.nodes) for pod in case.pods),
        local=sum(case.local(pod, nodes.get(pod.name)) for pod in case.pods),
        default_local=sum(case.local(pod, without.get(pod.name)) for pod in case.pods),
        seconds=seconds,
    )


def table(figures: list[Figures]) -> str:
    """All cases, one line each."""
    rows = [
        [
            case_figures.case,
            f"{case_figures.pods - case_figures.pending} of {case_figures.pods}",
            f"{case_figures.pods - case_figures.default_pending} of {case_figures.pods}",
            _share(case_figures.local, case_figures.needed),
            _share(case_figures.default_local, case_figures.needed),
            _share(case_figures.possible, case_figures.needed),
            f"{case_figures.seconds:.1f} s",
        ]
        for case_figures in figures
    ]
    return grid(["case", "placed", "without", "local", "without", "best node", "placed in"], rows)


def verdicts(figures: list[Figures]) -> list[str]:
    """One line per goal: reached or missed."""
    lines = []
    for case_figures in figures:
        if case_figures.case in ("one node each", "several nodes"):
            reached = case_figures.local >= GOAL_LOCAL * case_figures.possible
            lines.append(
                f"{case_figures.case}: {GOAL_LOCAL:.0%} of the bytes that can be local: "
                f"{'reached' if reached else 'missed'} ({_share(case_figures.local, case_figures.possible)})"
            )
    worse = [case_figures.case for case_figures in figures if case_figures.pending > case_figures.default_pending]
    left = f"missed ({', '.join(worse)})" if worse else "reached"
    lines.append(f"no pod pending that the default scheduler would have placed: {left}")
    return lines


def _case_line(figures: Figures) -> str:
    placed = f"{figures.pods - figures.pending} of {figures.pods} placed"
    return f"{figures.case}: {placed}, {_share(figures.local, figures.needed)} of bytes local"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _publish(plane: Any, namespace: str, case: Case) -> None:
    """Publish what the nodes' publishers would write, the Leases first."""
    from fake_publisher import publish, renew

    for node in case.holders():
        renew(plane, namespace, node, ago=timedelta(hours=2 if node in case.lost else 0))
    for oid, nodes in case.places.items():
        for node in nodes:
            publish(plane, namespace, oid, node, case.sizes[oid])


def _manifest(pod: Pod) -> dict[str, Any]:
    resources = {"requests": {"cpu": pod.cpu, "memory": "64Mi"}}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    if pod.selector:
        spec["nodeSelector"] = dict(pod.selector)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}, "spec": spec}


def _place(plane: Any, case: Case, pods: list[dict[str, Any]]) -> tuple[dict[str, str], float]:
    """The nodes of all placed pods, and how long that took; deletes the pods afterwards."""
    namespace = plane.namespace("pods")
    path = f"/api/v1/namespaces/{namespace}/pods"
    begin = time.monotonic()
    for manifest in pods:
        plane.request("POST", path, manifest)
    seen: Mapping[str, str] = {}
    last = time.monotonic()
    done_at: list[float] = []

    def settled() -> bool:
        nonlocal seen, last
        listed = plane.listed(path)
        placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName")}
        if len(placed) != len(seen):
            seen, last = placed, time.monotonic()
        unschedulable = sum(_unschedulable(pod) for pod in listed)
        if len(placed) == len(pods):
            done_at.append(time.monotonic())
            return True
        # The scheduler has tried those that cannot be placed, and nothing has changed for a while.
        return len(placed) + unschedulable == len(pods) and time.monotonic() - last > QUIET_SECONDS

    plane.wait(settled, f"the pods of {case.name!r} to be placed", PLACED_SECONDS)
    seconds = (done_at[0] if done_at else last) - begin
    plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
    plane.wait(lambda: not plane.listed(path), "the pods to go")
    return dict(seen), seconds


def _unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    return not pod["spec"].get("nodeName") and any(
        condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions
    )
