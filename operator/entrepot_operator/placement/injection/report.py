"""Human-readable report of an injection."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from entrepot.phrases import count_of, human_bytes

from entrepot_operator.placement.injection.injector import Injection, Nodes, explain
from entrepot_operator.placement.injection.scoring import LocationMap
from entrepot_operator.placement.names import FIRST_ORDINAL, JOB_INDEX, ClusterConfig

MAX_SHOWN = 16  # limit on the nodes listed for a pod, and on the pods listed for a set


def report_lines(
    where: str, injection: Injection, injections_by_ordinal: Mapping[int, Injection] | None = None
) -> list[str]:
    """The report for one pod.

    Args:
        where: the pod's location, e.g. in its document.
        injection: its injection.
        injections_by_ordinal: for an indexed set, the injection that each pod will get, by ordinal.
    """
    inputs = injection.inputs
    required_count = inputs.located + len(inputs.unknown) + len(inputs.lost)
    report = [where]
    report.append(
        f"  reads {count_of(required_count, 'object')}, {inputs.located} located: "
        f"{human_bytes(sum(inputs.nbytes.values()))}"
    )
    for score in injection.pulls[:MAX_SHOWN]:
        report.append(f"  {score.kind} {score.value}: {human_bytes(score.nbytes)}, weight {score.weight}")
    if len(injection.pulls) > MAX_SHOWN:
        report.append(f"  and {len(injection.pulls) - MAX_SHOWN} more")
    if injection.required:
        report.append(f"  bound to {', '.join(injection.required[:MAX_SHOWN])}")
    if injection.store != "off":
        report.append(f"  node with a store: {injection.store}")
    for name, paths in injection.added.mounts.items():
        report.append(f"  container {name}: {', '.join([*paths, *injection.added.env.get(name, [])])}")
    for ordinal, pod_injection in list((injections_by_ordinal or {}).items())[:MAX_SHOWN]:
        best = f"most of it on {pod_injection.pulls[0].value}" if pod_injection.pulls else "on no known node"
        report.append(f"  pod {ordinal}: {human_bytes(sum(pod_injection.inputs.nbytes.values()))}, {best}")
    if injections_by_ordinal and len(injections_by_ordinal) > MAX_SHOWN:
        report.append(f"  and {len(injections_by_ordinal) - MAX_SHOWN} more pods")
    report += [f"  {'problem' if warning.is_problem else 'note'}: {warning.text}" for warning in injection.reasons]
    return report


def by_ordinal(
    injection: Injection, locations: LocationMap, nodes: Nodes | None, cluster_config: ClusterConfig | None
) -> dict[int, Injection]:
    """The injections that the pods of an indexed set will get on creation, by ordinal; only the first few of a large
    set.

    Args:
        injection: the injection of their template.
        locations, nodes: as for ``inject``.
        cluster_config: configuration of the stores; None: the default.
    """
    if injection.pods is None or injection.ordinal is not None:
        return {}
    annotations: Mapping[str, Any] = injection.pod["metadata"]["annotations"]
    first = int(annotations.get(FIRST_ORDINAL, "0"))
    injections: dict[int, Injection] = {}
    for ordinal in range(first, first + min(injection.pods, MAX_SHOWN + 1)):
        pod = copy.deepcopy(injection.pod)
        pod["metadata"].setdefault("labels", {})[JOB_INDEX] = str(ordinal)
        injections[ordinal] = explain(pod, None, locations, nodes=nodes, site=cluster_config)
    return injections
