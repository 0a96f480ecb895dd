"""Human-readable report of an injection."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from entrepot_io.describe import human_bytes
from entrepot_io.placement.injecting import Injection, Nodes, explain
from entrepot_io.placement.names import FIRST_ORDINAL, JOB_INDEX, Site
from entrepot_io.placement.weighing import Locations

SHOWN = 16  # limit on the nodes listed for a pod, and on the pods listed for a set


def lines(where: str, done: Injection, parts: Mapping[int, Injection] | None = None) -> list[str]:
    """The report for one pod.

    Args:
        where: the pod's location, e.g. in its document.
        done: its injection.
        parts: for an indexed set, the injection that each pod will get, by ordinal.
    """
    found = done.found
    needed = found.located + len(found.unknown) + len(found.lost)
    told = [where]
    told.append(f"  reads {needed} objects, {found.located} located: {human_bytes(sum(found.nbytes.values()))}")
    for pull in done.pulls[:SHOWN]:
        told.append(f"  {pull.kind} {pull.value}: {human_bytes(pull.nbytes)}, weight {pull.weight}")
    if len(done.pulls) > SHOWN:
        told.append(f"  and {len(done.pulls) - SHOWN} more")
    if done.required:
        told.append(f"  bound to {', '.join(done.required[:SHOWN])}")
    if done.store != "off":
        told.append(f"  a node with a store is {done.store}")
    for name, paths in done.added.mounts.items():
        told.append(f"  container {name}: {', '.join([*paths, *done.added.env.get(name, [])])}")
    for ordinal, part in list((parts or {}).items())[:SHOWN]:
        best = f"most of it on {part.pulls[0].value}" if part.pulls else "on no known node"
        told.append(f"  pod {ordinal}: {human_bytes(sum(part.found.nbytes.values()))}, {best}")
    if parts and len(parts) > SHOWN:
        told.append(f"  and {len(parts) - SHOWN} more pods")
    told += [f"  {'problem' if one.problem else 'note'}: {one.text}" for one in done.reasons]
    return told


def by_ordinal(done: Injection, locations: Locations, nodes: Nodes | None, site: Site | None) -> dict[int, Injection]:
    """The injections that the pods of an indexed set will get on creation, by ordinal; only the first few of a large
    set.

    Args:
        done: the injection of their template.
        locations, nodes, site: as for ``inject``.
    """
    if done.pods is None or done.ordinal is not None:
        return {}
    annotations: Mapping[str, Any] = done.pod["metadata"]["annotations"]
    first = int(annotations.get(FIRST_ORDINAL, "0"))
    found: dict[int, Injection] = {}
    for ordinal in range(first, first + min(done.pods, SHOWN + 1)):
        pod = copy.deepcopy(done.pod)
        pod["metadata"].setdefault("labels", {})[JOB_INDEX] = str(ordinal)
        found[ordinal] = explain(pod, None, locations, nodes=nodes, site=site)
    return found
