"""The cluster's API as a source of locations for the hosts (``locations = cluster``, or ``cluster:NAMESPACE``)."""

from __future__ import annotations

from entrepot_io.placement.locating import Places
from entrepot_io.placement.polled import Polled

# A read lists all that is published, thousands of resources in a large cluster; nodes and leases change less often.
EVERY_SECONDS = 15.0
OLDEST_SECONDS = 90.0


def source(namespace: str) -> Polled:
    """What the cluster publishes: as ``kubectl`` would find it, in a pod by its service account.

    Args:
        namespace: that the stores are in; empty: all.
    """

    def read() -> Places:
        from entrepot_io.cluster.access import find
        from entrepot_io.cluster.api import Api
        from entrepot_io.cluster.places import read_cluster

        api = Api(find(), patience=0)  # the next read is soon
        try:
            return read_cluster(api, namespace or None)
        finally:
            api.close()

    return Polled(read, "the cluster", every=EVERY_SECONDS, oldest=OLDEST_SECONDS)
