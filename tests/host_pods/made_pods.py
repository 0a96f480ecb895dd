"""What is read off the pods that hosts made."""

from __future__ import annotations

from typing import Any

HOSTNAME = "kubernetes.io/hostname"


def drawn(pod: dict[str, Any]) -> dict[str, int]:
    """The nodes that draw a pod, and how strongly."""
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return {
        value: term["weight"]
        for term in node.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for one in term["preference"]["matchExpressions"]
        if one["key"] == HOSTNAME
        for value in one["values"]
    }
