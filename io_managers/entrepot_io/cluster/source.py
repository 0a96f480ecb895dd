"""The cluster's API as a source of locations for the orchestrators (``locations = cluster``, or
``cluster:NAMESPACE``).
"""

from __future__ import annotations

from entrepot_io.placement.locating import Places
from entrepot_io.placement.polled import Polled

# A read lists everything published, thousands of resources in a large cluster; nodes and leases change less often.
EVERY_SECONDS = 15.0
OLDEST_SECONDS = 90.0


def source(namespace: str) -> Polled:
    """What the cluster publishes, with access found as ``kubectl`` does; in a pod, through its service account.

    Args:
        namespace: of the stores; empty: all.
    """

    def read() -> Places:
        from entrepot_io.cluster.access import find
        from entrepot_io.cluster.api import Api
        from entrepot_io.cluster.places import read_cluster

        api = Api(find(), patience=0)  # the next read comes soon
        try:
            return read_cluster(api, namespace or None)
        finally:
            api.close()

    return Polled(read, "the cluster", every=EVERY_SECONDS, oldest=OLDEST_SECONDS)
