"""The webhook's view of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from entrepot_operator.placement.nodes import Node


class ClusterView(Protocol):
    """Object locations and node properties, held in memory. Must be thread-safe."""

    @property
    def synced(self) -> bool:
        """Whether everything was read once, and is still followed. Otherwise none of it is used."""
        ...

    def locations(self, ids: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Bytes by object and node; unpublished objects are omitted, lost ones have no nodes.

        Args:
            ids: 40 hexadecimal digits each.
        """
        ...

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes; None: not allowed to be read."""
        ...
