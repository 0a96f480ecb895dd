"""Deprecated alias of :mod:`entrepot_operator.placement.names`, for one version."""

from __future__ import annotations

from entrepot.lazy_imports import deprecated_module

__getattr__ = deprecated_module(
    __name__,
    "entrepot_operator.placement.names",
    {
        "ASKED": "USER_ANNOTATIONS",
        "Site": "ClusterConfig",
    },
)
