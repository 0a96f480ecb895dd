"""Decides which nodes get, or lose, the label of a node with a store. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from entrepot_operator.controller.state.snapshots import NodeSnapshot
from entrepot_operator.placement.names import STORE_LABEL, STORE_READY


@dataclass(frozen=True)
class LabelChange:
    """A node whose label must change.

    Attributes:
        node: its name.
        uid: of the node observed under that name.
        labelled: whether it should have the label.
    """

    node: str
    uid: str
    labelled: bool

    def manifest(self) -> dict[str, Any]:
        """The manifest to apply: with the label, or without any, which removes what the operator applied before.

        The UID in it keeps a deleted node from being created again.
        """
        labels = {STORE_LABEL: STORE_READY} if self.labelled else {}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "uid": self.uid, "labels": labels},
        }


def label_changes(nodes: Iterable[NodeSnapshot], ready_nodes: Collection[str]) -> list[LabelChange]:
    """The changes to make. Labels written by others are not removed.

    Args:
        nodes: of the cluster.
        ready_nodes: those with a usable store.
    """
    return [
        LabelChange(node.name, node.uid, node.name in ready_nodes)
        for node in nodes
        if (node.label_value != STORE_READY if node.name in ready_nodes else node.is_ours)
    ]
