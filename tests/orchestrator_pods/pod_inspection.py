"""Inspection of pods that orchestrators created."""

from __future__ import annotations

from typing import Any

HOSTNAME = "kubernetes.io/hostname"


def preferred_nodes(pod: dict[str, Any]) -> dict[str, int]:
    """Preferred nodes of a pod, with their weights."""
    node_affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return {
        value: term["weight"]
        for term in node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == HOSTNAME
        for value in expression["values"]
    }
