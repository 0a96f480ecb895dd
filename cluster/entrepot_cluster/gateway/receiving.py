"""Receives objects from a peer, and asks once more for those whose bytes were damaged on the way.

asked for ──arrived──▶ here
    ├──damaged──▶ asked for again, at most twice ──damaged──▶ failed
    └──any other error──▶ failed
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from entrepot.errors import CorruptData, EntrepotError

from entrepot_cluster.transport.endpoints import ObjectSink, Wanted
from entrepot_cluster.transport.fetching import fetch
from entrepot_cluster.transport.peer import PeerConnections

ATTEMPTS = 3

_log = logging.getLogger(__name__)


def receive(peer: PeerConnections, wanted: Sequence[Wanted], sink: ObjectSink) -> list[EntrepotError | None]:
    """Fetch objects from a peer.

    Bytes that were damaged on the way say nothing about those at the peer, so they do not make an object lost.

    Returns:
        for each object None, or why it is not here now.
    """
    errors = [outcome.error for outcome in fetch(peer, wanted, sink)]
    for _ in range(ATTEMPTS - 1):
        damaged = [index for index, error in enumerate(errors) if isinstance(error, CorruptData)]
        if not damaged:
            break
        _log.warning("%d objects arrived damaged, and are fetched again: %s", len(damaged), errors[damaged[0]])
        peer.close_idle(0)  # each on a connection of its own: what damages bytes may be in the path of the old one
        again = fetch(peer, [wanted[index] for index in damaged], sink)
        for index, outcome in zip(damaged, again, strict=True):
            errors[index] = outcome.error
    return errors
