"""The cluster's API as a source of locations for the orchestrators (``locations = cluster``, or
``cluster:NAMESPACE``).
"""

from __future__ import annotations

from entrepot_operator.placement.cached_source import CachedSource
from entrepot_operator.placement.locations import Locations

# A read lists everything published, thousands of resources in a large cluster; nodes and leases change less often.
POLL_SECONDS = 15.0
MAX_AGE_SECONDS = 90.0


def cluster_source(namespace: str) -> CachedSource:
    """Source of the locations that a cluster publishes. Finds credentials as ``kubectl`` does, in pods too.

    Args:
        namespace: of the stores; empty: all.
    """

    def read() -> Locations:
        from entrepot_operator.kubernetes.api import Api
        from entrepot_operator.kubernetes.credentials import find
        from entrepot_operator.kubernetes.locations import read_cluster_locations

        api = Api(find(), patience=0)  # the next read comes soon
        try:
            return read_cluster_locations(api, namespace or None)
        finally:
            api.close()

    return CachedSource(read, "the cluster", every=POLL_SECONDS, oldest=MAX_AGE_SECONDS)
