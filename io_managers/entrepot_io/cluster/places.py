"""Deprecated alias of :mod:`entrepot_operator.kubernetes.locations`, for one version."""

from __future__ import annotations

from entrepot.lazy_imports import deprecated_module

__getattr__ = deprecated_module(
    __name__,
    "entrepot_operator.kubernetes.locations",
    {
        "ClusterPlaces": "ClusterLocations",
        "INSTALL": "INSTALL_COMMAND",
        "counts": "attracts_pods",
        "missing_kinds": "diagnose_missing_crds",
        "node_of": "parse_node",
        "read_cluster": "read_cluster_locations",
    },
)
