"""Inspection of pods that orchestrators created."""

from __future__ import annotations

from typing import Any

HOSTNAME = "kubernetes.io/hostname"


def drawn(pod: dict[str, Any]) -> dict[str, int]:
    """Preferred nodes of a pod, with their weights."""
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return {
        value: term["weight"]
        for term in node.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for one in term["preference"]["matchExpressions"]
        if one["key"] == HOSTNAME
        for value in one["values"]
    }
