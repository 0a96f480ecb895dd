"""What the webhook asks of whoever knows the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from entrepot_io.placement.nodes import Node


class Knowledge(Protocol):
    """Where objects are and what the nodes are like, held in memory. Asked from several threads at once."""

    @property
    def synced(self) -> bool:
        """Whether all of it was read once, and is still followed. Otherwise nothing that it says is used."""
        ...

    def locations(self, ids: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Bytes by object and node; an object that nobody published is left out, one that is lost has no nodes.

        Args:
            ids: 40 hexadecimal digits each.
        """
        ...

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes; None: whoever looks may not see them."""
        ...
