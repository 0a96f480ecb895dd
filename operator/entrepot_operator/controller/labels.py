"""Which nodes get the label of a node with a store, and which lose it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from entrepot_io.placement.names import STORE_LABEL, STORE_READY

from entrepot_operator.controller.observed import NodeSeen


@dataclass(frozen=True)
class LabelChange:
    """A node whose label is not as it should be.

    Attributes:
        node: its name.
        uid: of the life of that name that was seen.
        labelled: whether it is to have the label.
    """

    node: str
    uid: str
    labelled: bool

    def manifest(self) -> dict[str, Any]:
        """What is applied: the label, or nothing, which takes away what the operator had applied.

        With the UID in it a node that went meanwhile is not made anew.
        """
        labels = {STORE_LABEL: STORE_READY} if self.labelled else {}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "uid": self.uid, "labels": labels},
        }


def changes(nodes: Iterable[NodeSeen], ready: Collection[str]) -> list[LabelChange]:
    """What is to be changed. A label that somebody else wrote is not taken away.

    Args:
        nodes: of the cluster.
        ready: those with a store that can be used.
    """
    return [
        LabelChange(one.name, one.uid, one.name in ready)
        for one in nodes
        if (one.value != STORE_READY if one.name in ready else one.ours)
    ]
